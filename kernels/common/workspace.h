// workspace.h: scratch memory of one thread, reused from batch to batch.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "common/error.h"
#include "common/node_table.h"

namespace lg {

// Grows, never shrinks: after a few batches no allocation is left.
template <class T>
T* reserve(std::vector<T>& buffer, int64_t size) {
  if (int64_t(buffer.size()) < size) buffer.resize(size + size / 2);
  return buffer.data();
}

// The edges of the hop at work, or of all hops that share one CSC. They grow here, and move to the
// arena when their number, and so where they start, is known.
struct Edges {
  std::vector<int32_t> indptr, indices;
  std::vector<int64_t> ids;
  std::vector<float> weights;
  std::vector<int32_t> types;
};

class Workspace {
 public:
  using Table = std::variant<StampTable, HashTable>;

  Workspace(int64_t num_graph_nodes, bool use_hash)
      : num_nodes(num_graph_nodes),
        table(use_hash ? Table(HashTable()) : Table(StampTable(num_graph_nodes))) {}

  const int64_t num_nodes;
  Table table;
  Edges edges;

  // Scratch memory of any type that a kernel keeps from call to call, made on first use.
  template <class Scratch>
  Scratch& scratch() {
    for (const auto& [key, memory] : scratch_) {
      if (key == &kKey<Scratch>) return *static_cast<Scratch*>(memory.get());
    }
    scratch_.emplace_back(&kKey<Scratch>, std::make_shared<Scratch>());
    return *static_cast<Scratch*>(scratch_.back().second.get());
  }

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
  template <class Scratch>
  static inline const char kKey = 0;

  std::vector<std::pair<const char*, std::shared_ptr<void>>> scratch_;
  std::atomic<bool> busy_{false};
};

}  // namespace lg
