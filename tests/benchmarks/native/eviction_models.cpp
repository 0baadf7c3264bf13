// eviction_models.cpp: what dynamic caches are compared with: LRU, and the optimum (Belady). Node ids alone.
//
// As in kernels/dynamic_cache, a batch hits what is there when it comes; then its misses are admitted.
#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

namespace {

// A doubly linked list in arrays, as BGL's LRU has (3.2.1, footnote 3): every visit moves a node to the front.
struct Lru {
  Lru(int64_t num_nodes, int64_t num_slots)
      : num_slots(num_slots), next(num_nodes + 1, kOut), previous(num_nodes + 1, kOut), end(int32_t(num_nodes)) {
    next[end] = previous[end] = end;
  }

  bool holds(int64_t node) const { return next[node] != kOut; }

  void remove(int32_t node) {
    next[previous[node]] = next[node];
    previous[next[node]] = previous[node];
    next[node] = kOut;
  }

  void push_front(int32_t node) {
    next[node] = next[end];
    previous[node] = end;
    previous[next[end]] = node;
    next[end] = node;
  }

  int64_t visit(const int64_t* ids, int64_t count) {
    missed.clear();
    for (int64_t i = 0; i < count; ++i) {
      if (i + kAhead < count) __builtin_prefetch(&next[ids[i + kAhead]]);
      if (holds(ids[i])) {
        remove(int32_t(ids[i]));
        push_front(int32_t(ids[i]));
      } else {
        missed.push_back(int32_t(ids[i]));
      }
    }
    for (const int32_t node : missed) {
      if (size == num_slots) {
        remove(previous[end]);
      } else {
        ++size;
      }
      push_front(node);
    }
    return count - int64_t(missed.size());
  }

  static constexpr int32_t kOut = -1;
  static constexpr int64_t kAhead = 32;
  int64_t num_slots, size = 0;
  std::vector<int32_t> next, previous;
  int32_t end;  // joins the list's two ends
  std::vector<int32_t> missed;
};

}  // namespace

extern "C" {

void* lru_new(int64_t num_nodes, int64_t num_slots) { return new Lru(num_nodes, num_slots); }
void lru_delete(void* lru) { delete static_cast<Lru*>(lru); }
int64_t lru_visit(void* lru, const int64_t* ids, int64_t count) { return static_cast<Lru*>(lru)->visit(ids, count); }

// Writes the hits of each batch; batch b is ids[begins[b]] to ids[begins[b + 1] - 1], all distinct.
// After each batch the cache keeps, of what it has and what came, the nodes that are needed soonest.
void belady(int64_t num_nodes, int64_t num_slots, const int64_t* ids, const int64_t* begins, int64_t num_batches,
            int64_t* hits) {
  const int64_t total = begins[num_batches];
  std::vector<int64_t> needed(total), next(num_nodes, num_batches);  // batch of the next visit
  for (int64_t batch = num_batches - 1; batch >= 0; --batch) {
    for (int64_t i = begins[batch]; i < begins[batch + 1]; ++i) {
      needed[i] = next[ids[i]];
      next[ids[i]] = batch;
    }
  }
  std::vector<char> held(num_nodes, 0);
  std::priority_queue<std::pair<int64_t, int64_t>> latest;  // entries of earlier visits are stale
  int64_t size = 0;
  for (int64_t batch = 0; batch < num_batches; ++batch) {
    hits[batch] = 0;
    for (int64_t i = begins[batch]; i < begins[batch + 1]; ++i) {
      const int64_t node = ids[i];
      hits[batch] += held[node];
      size += !held[node];
      held[node] = 1;
      next[node] = needed[i];
      latest.emplace(needed[i], node);
    }
    while (size > num_slots) {
      const auto [when, node] = latest.top();
      latest.pop();
      if (!held[node] || next[node] != when) continue;
      held[node] = 0;
      --size;
    }
  }
}
}
