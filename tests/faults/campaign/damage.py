from tests.faults.campaign.attack import Attack, Verdict
class Damage(Attack):
    name = "damage"; good = frozenset(); ways = ("none",)
    def obstacle(self, way): return "unwritten"
    def trial(self, way, choose, folder): raise NotImplementedError
