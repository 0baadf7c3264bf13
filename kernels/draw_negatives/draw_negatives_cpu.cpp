#include "draw_negatives/draw_negatives.h"

#include <algorithm>
#include <vector>

#include "common/fetch.h"
#include "common/philox_many.h"
#include "common/signals.h"

namespace lg {
namespace {

constexpr int64_t kMaxRow = int64_t(1) << 48;
constexpr int64_t kChunk = 4096;                      // negatives: their scratch stays in cache
constexpr int64_t kBoundsAhead = 16, kListAhead = 8;  // candidates lie anywhere

StreamKey negatives_key(uint64_t seed, uint32_t epoch) {
  constexpr uint32_t kTag = 0x6e656761u;  // "nega", in ASCII
  const Words4 words = philox({epoch, 0, 0, kTag}, uint32_t(seed), uint32_t(seed >> 32));
  return {words.x, words.y, words.z, words.w};
}

void check_end(const char* name, int64_t i, int64_t node, const NodeRange& range) {
  if (!range.has(node)) {
    fail<SeedError>(name, "[", i, "] is ", node, ", but nodes of its type lie in [", range.first,
                    ", ", range.first + range.count, ").");
  }
}

template <class Index>
void check(const NegativesRequest<Index>& request) {
  for (int64_t i = 0; i < request.num_rows; ++i) {
    if (!in_range(request.rows[i], kMaxRow)) {
      fail<SeedError>("rows[", i, "] is ", request.rows[i], ", but must lie in [0, 2**48).");
    }
    for (int64_t j = 0; request.tried && j < request.num; ++j) {
      const int64_t first = request.tried[i * request.num + j];
      if (!in_range(first, request.tries + 1)) {
        fail<SeedError>("tried[", i, ", ", j, "] is ", first, ", but must lie in [0, ",
                        request.tries, "].");
      }
    }
    if (!request.src) continue;
    check_end("src", i, request.src[i], request.sources);
    check_end("dst", i, request.dst[i], request.runs.destinations);
  }
}

template <class Index>
class NegativeDraws {
 public:
  explicit NegativeDraws(const NegativesRequest<Index>& request)
      : request_(request),
        key_(negatives_key(request.seed, request.epoch)),
        draws_each_(request.src_alias || request.dst_alias ? 2 : 1),
        find_(scan<Index>()) {}

  void run(int64_t* out) {
    const int64_t all = request_.num_rows * request_.num;
    int64_t row = 0, j = 0;
    for (int64_t begin = 0; begin < all; begin += kChunk) {
      todo_.clear();
      for (int64_t i = begin; i < std::min(begin + kChunk, all); ++i) {
        todo_.push_back({row, j, 0, 0, request_.tried ? request_.tried[i] : 0});
        if (++j == request_.num) ++row, j = 0;
      }
      for (give_up(out); !todo_.empty(); give_up(out)) {
        draw();
        look(out);
        signals_.after(kChunk);
      }
    }
  }

 private:
  struct Try {
    int64_t row, j;
    int64_t candidate;  // from its type's first node on
    uint32_t coin;
    int64_t attempt;
  };

  bool is_dst(const Try& each) const { return each.j < request_.num_dst; }
  const NodeRange& range(const Try& each) const {
    return is_dst(each) ? request_.runs.destinations : request_.sources;
  }
  // Of the nodes that the candidate is one of.
  const uint32_t* times(const Try& each) const {
    return is_dst(each) ? request_.dst_time : request_.src_time;
  }
  const AliasEntry* alias(const Try& each) const {
    return is_dst(each) ? request_.dst_alias : request_.src_alias;
  }
  int64_t run_of(const Try& each) const {
    const auto& runs = request_.runs;
    return runs.run_of(is_dst(each) ? runs.destinations.first + each.candidate
                                    : request_.dst[each.row]);
  }

  void put(const Try& each, int64_t node, int64_t* out) const {
    const int64_t at = each.row * request_.num + each.j;
    out[at] = node;
    if (request_.tried) request_.tried[at] = each.attempt;
  }

  // Leaves those that have tries left.
  void give_up(int64_t* out) {
    size_t left = 0;
    for (const Try& each : todo_) {
      if (each.attempt < request_.tries) {
        todo_[left++] = each;
      } else {
        put(each, -1, out);
      }
    }
    todo_.resize(left);
  }

  // The candidates of one attempt each. Four draws share a block of words.
  void draw() {
    blocks_.clear();
    for (size_t i = 0; i < todo_.size(); ++i) {
      if (i == 0 || !share_block(todo_[i - 1], todo_[i])) {
        blocks_.push_back(draw_counter(draws(todo_[i]), block_of(todo_[i]), 0));
      }
    }
    philox_many(blocks_.data(), int64_t(blocks_.size()), key_.draw0, key_.draw1);
    const Words4* block = blocks_.data();
    for (size_t i = 0; i < todo_.size(); ++i) {
      Try& each = todo_[i];
      if (i > 0 && !share_block(todo_[i - 1], each)) ++block;
      const uint32_t words[4] = {block->x, block->y, block->z, block->w};
      const uint32_t number = uint32_t(each.j * draws_each_);
      each.candidate =
          draw_below(draws(each), number, uint32_t(range(each).count), words[number & 3]);
      each.coin = words[(number + 1) & 3];
      if (const AliasEntry* entries = alias(each)) fetch_line(&entries[each.candidate]);
    }
    if (draws_each_ == 1) return;
    for (Try& each : todo_) {  // slots become nodes
      const AliasEntry* entries = alias(each);
      if (!entries) continue;
      each.candidate = resolve(entries[each.candidate], uint32_t(each.candidate), each.coin);
    }
  }

  uint32_t block_of(const Try& each) const { return uint32_t(each.j * draws_each_) >> 2; }
  bool share_block(const Try& a, const Try& b) const {
    return a.row == b.row && a.attempt == b.attempt && block_of(a) == block_of(b);
  }

  NodeDraws draws(const Try& each) const {
    return node_draws(key_, uint32_t(each.attempt), request_.hop, request_.rows[each.row]);
  }

  // Writes those that will do; the others stay to be drawn again.
  void look(int64_t* out) {
    const int64_t count = int64_t(todo_.size());
    size_t left = 0;
    for (int64_t i = -kBoundsAhead; i < count; ++i) {
      if (request_.src) prefetch(i + kBoundsAhead, i + kListAhead);
      if (i < 0) continue;
      const Try each = todo_[size_t(i)];
      if (request_.src && !is_negative(each)) {
        todo_[left] = each;
        ++todo_[left++].attempt;
      } else {
        put(each, range(each).first + each.candidate, out);
      }
    }
    todo_.resize(left);
  }

  LG_PREFETCHES void prefetch(int64_t bounds, int64_t list) const {
    const int64_t count = int64_t(todo_.size());
    if (bounds < count) {
      const Try& each = todo_[size_t(bounds)];
      request_.runs.prefetch_bounds(run_of(each));
      if (const uint32_t* time = times(each)) fetch_line(&time[each.candidate]);
    }
    if (list >= 0 && list < count) request_.runs.prefetch_list(run_of(todo_[size_t(list)]));
  }

  bool is_negative(const Try& each) {
    const int64_t candidate = range(each).first + each.candidate;
    const int64_t src = request_.src[each.row], dst = request_.dst[each.row];
    if (candidate == (is_dst(each) ? dst : src)) return false;
    const uint32_t* time = times(each);
    if (time && time[each.candidate] >= request_.until[each.row]) return false;
    const int64_t run = run_of(each), end = request_.runs.begin(run + 1);
    int64_t begin = request_.runs.begin(run);
    signals_.after((end - begin) / 16);  // vectors scan them
    // Of several such edges any may be the earliest: whole lists of several types are not in the order of times.
    for (; begin < end; ++begin) {
      const int64_t found =
          find_(request_.runs.indices + begin, end - begin, Index(is_dst(each) ? src : candidate));
      if (found < 0) return true;
      begin += found;
      if (!request_.edge_time || request_.edge_time[begin] < request_.until[each.row]) return false;
    }
    return true;
  }

  const NegativesRequest<Index>& request_;
  const StreamKey key_;
  const int64_t draws_each_;
  const Scan<Index> find_;
  std::vector<Try> todo_;
  std::vector<Words4> blocks_;
  SignalWatch signals_;
};

}  // namespace

template <class Index>
void draw_negatives(const NegativesRequest<Index>& request, int64_t* out) {
  check(request);
  NegativeDraws<Index>(request).run(out);
}

template void draw_negatives(const NegativesRequest<int32_t>&, int64_t*);
template void draw_negatives(const NegativesRequest<int64_t>&, int64_t*);

}  // namespace lg
