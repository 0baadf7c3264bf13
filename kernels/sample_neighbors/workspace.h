// workspace.h: scratch memory of one thread, reused from batch to batch.
#pragma once

#include <atomic>
#include <cstdint>
#include <variant>
#include <vector>

#include "common/error.h"
#include "sample_neighbors/node_table.h"
#include "sample_neighbors/picked_set.h"

namespace lg {

// Grows, never shrinks: after a few batches no allocation is left.
template <class T>
T* reserve(std::vector<T>& buffer, int64_t size) {
  if (int64_t(buffer.size()) < size) buffer.resize(size + size / 2);
  return buffer.data();
}

// Some destination nodes on their way through the stages of the kernel.
struct Chunk {
  std::vector<int64_t> values;  // positions in the graph's `indices`, then the neighbours there
  int64_t num_edges = 0;
};

class Workspace {
 public:
  using Table = std::variant<StampTable, HashTable>;

  Workspace(int64_t num_graph_nodes, bool use_hash)
      : num_nodes(num_graph_nodes),
        table(use_hash ? Table(HashTable()) : Table(StampTable(num_graph_nodes))) {}

  const int64_t num_nodes;
  Table table;

  Chunk chunks[3];  // one in each stage
  std::vector<uint32_t> words, pick;
  LargePickedSet large_picked;

  // The edges of the hop at work, or in mode "new" of all hops so far.
  std::vector<int32_t> indptr, indices;
  std::vector<int64_t> edge_ids;

  // Holds the workspace for one batch. Kernels run without the GIL, so a second thread can come in.
  class Lease {
   public:
    explicit Lease(Workspace& workspace) : busy_(workspace.busy_) {
      if (busy_.exchange(true)) {
        fail<SamplerConfigError>(
            "Workspace: in use by another thread. Give each thread its own Workspace.");
      }
    }
    ~Lease() { busy_.store(false); }
    Lease(const Lease&) = delete;

   private:
    std::atomic<bool>& busy_;
  };

 private:
  std::atomic<bool> busy_{false};
};

}  // namespace lg
