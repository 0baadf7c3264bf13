// Edges come back from the file by list, and as they were added, however buckets are divided.
#include "edge_spill/edge_spill.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "fuzz/exact.h"
#include "fuzz/target.h"

namespace lg::fuzz {
namespace {

struct Edge {
  int64_t list, src, time, id;
  double weight;
};

class File {
 public:
  File() : fd(memfd_create("edges", MFD_CLOEXEC)) {}
  ~File() { close(fd); }
  const int fd;
};

template <class Index, class Id>
void take(Choices& choose, EdgeSpill& spill, int64_t number, EdgeSpill::Key key,
          std::vector<Edge>& found) {
  const EdgeSpill::Bucket bucket = spill.bucket(number);
  if (bucket.num_records > 3 && choose.flag()) {
    const std::vector<int64_t> parts = spill.split(number, key);
    if (!parts.empty()) {
      spill.release(number);
      for (const int64_t part : parts) take<Index, Id>(choose, spill, part, key, found);
      return;
    }
  }
  const int64_t first = choose.size(bucket.num_records), count = bucket.num_records;
  for (const auto& [begin, end] : {std::pair{int64_t(0), first}, std::pair{first, count}}) {
    const RecordLayout& layout = spill.layout();
    Exact<Index> list(end - begin), src(end - begin);
    Exact<int64_t> time(layout.has_time ? end - begin : 0);
    Exact<Id> id(end - begin);
    Exact<uint8_t> weight(layout.weight_bytes * (end - begin));
    spill.read(
        number, begin, end - begin,
        RecordColumns<Index, Id>{list.data(), src.data(), layout.has_time ? time.data() : nullptr,
                                 id.data(), layout.weight_bytes ? weight.data() : nullptr});
    for (int64_t r = 0; r < end - begin; ++r) {
      Edge edge{bucket.first_list + int64_t(list[r]), int64_t(src[r]),
                layout.has_time ? time[r] : kNoTime, int64_t(id[r]), 1};
      if (layout.weight_bytes == 8) std::memcpy(&edge.weight, weight.data() + 8 * r, 8);
      if (layout.weight_bytes == 4) {
        float narrow;
        std::memcpy(&narrow, weight.data() + 4 * r, 4);
        edge.weight = narrow;
      }
      found.push_back(edge);
    }
  }
}

template <class Index, class Id>
void check(Choices& choose) {
  const int64_t num_src = choose.between(1, 40), num_dst = choose.between(1, 40);
  const int64_t step = choose.between(1, 3), first_list = choose.below(step);
  const RecordLayout layout{choose.flag(), sizeof(Id) == 8 && choose.flag() ? 8 : 4,
                            choose.one_of({0, 4, 8})};
  const File file;
  EdgeSpill spill(file.fd, "edges", num_dst * step, int(choose.below(7)), choose.between(1, 300),
                  layout);
  const int64_t num_given = spill.num_buckets(), first_src = choose.size(100);
  Exact<int64_t> source_time(num_src, kNoTime);
  for (int64_t v = 0; v < num_src; ++v) source_time[v] = choose.size(20);
  std::vector<Edge> wanted;
  for (int64_t batches = choose.below(4); batches >= 0; --batches) {
    const int64_t count = choose.size(200);
    Exact<int32_t> src(count), dst(count);
    Exact<int64_t> time(count);
    Exact<uint8_t> weight(layout.weight_bytes * count);
    const bool timed = layout.has_time && choose.flag(), clamped = layout.has_time && choose.flag();
    const bool weighted = layout.weight_bytes > 0 && choose.flag();
    const int64_t first_id = int64_t(wanted.size());
    for (int64_t e = 0; e < count; ++e) {
      src[e] = int32_t(choose.below(num_src + 1)) - 1;
      dst[e] = choose.flag() ? 0 : int32_t(choose.below(num_dst + 1)) - 1;
      time[e] = choose.one_in(4) ? int64_t(choose.wide()) : choose.size(30);
      const double heavy = double(choose.below(8));
      const float light = float(heavy);
      if (layout.weight_bytes == 8) std::memcpy(weight.data() + 8 * e, &heavy, 8);
      if (layout.weight_bytes == 4) std::memcpy(weight.data() + 4 * e, &light, 4);
      if (src[e] < 0 || dst[e] < 0) continue;
      int64_t at = timed ? time[e] : kNoTime;
      if (clamped) at = std::max(at, source_time[src[e]]);
      wanted.push_back({first_list + dst[e] * step, first_src + src[e],
                        layout.has_time ? at : kNoTime, int64_t(wanted.size()),
                        weighted ? heavy : 1});
    }
    const int64_t added = spill.add(
        {src.data(), dst.data(), timed ? time.data() : nullptr, weighted ? weight.data() : nullptr,
         clamped ? source_time.data() : nullptr, count, first_src, first_list, step, first_id});
    expect(first_id + added == int64_t(wanted.size()), added, " edges added");
  }
  spill.finish();
  const auto key = choose.flag() ? EdgeSpill::Key::kTime : EdgeSpill::Key::kSource;
  std::vector<Edge> found;
  for (int64_t number = 0; number < num_given; ++number) {
    take<Index, Id>(choose, spill, number, key, found);
  }
  expect(found.size() == wanted.size(), found.size(), " records");
  // Buckets divided by time or source leave lists whole, and in order by (key, id) at the least by
  // the key's parts; so that each edge is there once is what holds in all cases.
  std::vector<bool> seen(wanted.size());
  for (const Edge& edge : found) {
    expect(edge.id >= 0 && edge.id < int64_t(wanted.size()) && !seen[size_t(edge.id)], "id ",
           edge.id);
    seen[size_t(edge.id)] = true;
    const Edge& want = wanted[size_t(edge.id)];
    expect(edge.list == want.list && edge.src == want.src && edge.time == want.time &&
               (layout.weight_bytes == 0 || edge.weight == want.weight),
           "edge ", edge.id, " goes to list ", edge.list);
  }
}

}  // namespace

LG_FUZZ_TARGET(edge_spill) {
  const bool wide = choose.flag();
  choose.flag() ? (wide ? check<int32_t, int64_t>(choose) : check<int32_t, int32_t>(choose))
                : (wide ? check<int64_t, int64_t>(choose) : check<int64_t, int32_t>(choose));
}

}  // namespace lg::fuzz
