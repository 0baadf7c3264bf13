"""Cells of a notebook: a session that has computed before it trains, with classes that only it knows."""

# %%
import torch

torch.set_num_threads(2)
torch.rand(2000, 2000).exp().sum()  # OpenMP has its threads now

# %%
from pytorch_lightning import Trainer  # noqa: E402

from lightning_gnnload import FactoredStrategy  # noqa: E402
from tests.integration.scripts.toy import Recorder, digest, toy_module  # noqa: E402


class InTheNotebook(Recorder):
    """Its module cannot be imported."""

    def training_step(self, batch, batch_idx):
        torch.rand(1000, 1000).exp().sum()  # enough to be shared out among threads
        return super().training_step(batch, batch_idx)


# %%
def train(strategy):
    torch.manual_seed(0)
    model = InTheNotebook()
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    trainer = Trainer(accelerator="cpu", devices=2, strategy=strategy, max_epochs=1, limit_train_batches=3, **quiet)
    trainer.fit(model, toy_module())
    return digest(model.state_dict().values()), round(trainer.callback_metrics["val_loss"].item(), 6)


# %%
if __name__ == "__main__":
    default = train(FactoredStrategy())
    by_name = train("factored_notebook")
    print("trained", default == by_name, default)
