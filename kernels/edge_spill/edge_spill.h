// edge_spill.h: edges on their way through a file, from the order of tables to that of lists.
//
// A list has the in-neighbours of one node by edges of one type. Edges are written as records to
// buckets of 2^shift consecutive lists. A bucket has extents of the file, so that the disk sees long
// writes whatever the number of buckets, and is read in the order in which its edges were added.
//
//   add()       from one thread; the edges of a batch whose ends are known
//   finish()    writes what is buffered
//   split()     divides a bucket that is too large, by lists, or one list by another key, into
//               buckets in the order of that key, each again in the order of adding
//   read()      some records of a bucket, as columns; threads may read at once, also while one splits
//   release()   gives the room of a bucket back to the disk
//
// Memory: extent_bytes for each bucket while edges are added; for kWays buckets while one is split.
// FeatureFileError: the file cannot be written or read; the message says what the system says.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace lg {

// list and source, 4 bytes each; then, each where there is one: time, id, weight.
struct RecordLayout {
  bool has_time;
  int id_bytes, weight_bytes;  // 4 or 8; 0, 4 or 8

  int time_at() const { return 8; }
  int id_at() const { return time_at() + (has_time ? 8 : 0); }
  int weight_at() const { return id_at() + id_bytes; }
  int bytes() const { return weight_at() + weight_bytes; }
};

constexpr int64_t kNoTime = std::numeric_limits<int64_t>::min();  // before all times

// Edges of one type. An end that is negative is of no node: its edge is left out.
struct EdgeBatch {
  const int32_t *src, *dst;  // [count], within their node types
  const int64_t* time;       // [count], or nullptr: kNoTime
  const uint8_t* weight;     // [count] of weight_bytes, or nullptr: 1
  const int64_t*
      source_time;  // of all nodes src may name, or nullptr: no edge is there before its source
  int64_t count;
  int64_t first_src;         // the number in the graph of source 0
  int64_t first_list, step;  // that of target v is first_list + v * step
  int64_t first_id;          // of the first edge that is not left out; those that follow count on
};

template <class Index, class Id>
struct RecordColumns {
  Index *list, *src;  // [count]; lists count from the bucket's first
  int64_t* time;      // or nullptr
  Id* id;
  uint8_t* weight;  // of weight_bytes each, or nullptr
};

class EdgeSpill {
 public:
  enum class Key { kTime, kSource };
  static constexpr int64_t kWays = 64;

  struct Bucket {
    int64_t first_list, num_lists;
    int64_t origin;  // the list that records count from
    int64_t num_records = 0;
    std::vector<int64_t> extents{};  // where they begin; all but the last are full
  };

  // A file that is empty and that nobody else writes.
  EdgeSpill(int fd, std::string name, int64_t num_lists, int shift, int64_t extent_bytes,
            const RecordLayout& layout);
  ~EdgeSpill();

  // The number of edges that are not left out.
  int64_t add(const EdgeBatch& batch);
  void finish();

  int64_t num_buckets() const;
  const Bucket& bucket(int64_t number) const;

  // The numbers of the buckets that hold the same records; none where their lists and keys are equal,
  // and those that would be empty are left out. The bucket itself stays.
  std::vector<int64_t> split(int64_t number, Key key);

  // Records [first, first + count) of a bucket.
  template <class Index, class Id>
  void read(int64_t number, int64_t first, int64_t count,
            const RecordColumns<Index, Id>& out) const;

  void release(int64_t number);

  int64_t num_bytes() const { return end_; }
  const RecordLayout& layout() const { return layout_; }

 private:
  class Writer;

  template <class Call>
  void for_records(const Bucket& bucket, int64_t first, int64_t count, const Call& call) const;

  const int fd_;
  const std::string name_;
  const int shift_;
  const RecordLayout layout_;
  const int64_t extent_bytes_;  // of whole records
  int64_t end_ = 0;             // of the file
  mutable std::mutex mutex_;    // of the list of buckets; each lies where it is
  std::deque<Bucket> buckets_;
  std::unique_ptr<Writer> writer_;  // until all are added
};

}  // namespace lg
