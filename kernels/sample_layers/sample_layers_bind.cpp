#include "bind/bind.h"
#include "sample_layers/sample_layers.h"

namespace lg::bind {

LG_BIND_INDEX(Index, m) {
  m.def(
      "sample_layers",
      [](Workspace& workspace, Array<const int64_t> indptr, Array<const Index> indices,
         Array<const int64_t> seeds, std::vector<int64_t> budgets, int method,
         std::optional<Array<const int64_t>> importance_tree, uint64_t seed, uint32_t epoch,
         uint32_t step, uint32_t hop, Names names, Bytes arena, bool replace, bool normalize,
         bool keep_known, bool expand_new, bool edge_ids, int64_t num_drawn, Weights weights,
         int64_t max_local) {
        const LayerRequest<Index> request{
            csc(indptr, indices, names),
            batch_request(seeds, seed, epoch, step, hop, arena, max_local),
            std::move(budgets),
            LayerMethod(method),
            importance_tree ? importance_tree->data() : nullptr,
            replace,
            normalize,
            keep_known,
            expand_new ? Expand::kNew : Expand::kAll,
            edge_ids,
            num_drawn,
            edge_weights(weights)};
        return sampled([&] { return sample_layers(workspace, request); });
      },
      "workspace"_a, "indptr"_a.noconvert(), "indices"_a.noconvert(), "seeds"_a.noconvert(),
      "budgets"_a, "method"_a, "importance_tree"_a.noconvert().none(), "seed"_a, "epoch"_a,
      "step"_a, "hop"_a, "names"_a.noconvert().none(), "arena"_a.noconvert(), "replace"_a,
      "normalize"_a, "keep_known"_a, "expand_new"_a, "edge_ids"_a, "num_drawn"_a,
      "weights"_a.noconvert().none(), "max_local"_a = kMaxLocal);
}

}  // namespace lg::bind
