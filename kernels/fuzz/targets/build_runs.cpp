// Edge lists come out run by run, sorted by (code, place); ids that are no nodes are refused. What
// was built passes the check of runs, and spoiled anywhere it passes only if it is still sound.
#include "graph/build_runs.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "fuzz/graphs.h"
#include "fuzz/target.h"
#include "graph/check_runs.h"

namespace lg::fuzz {
namespace {

// Edges from one type of nodes, with ids from first_src on, into another, whose nodes are 0, 1, ...
template <class Id>
struct List {
  Exact<Id> src, dst;
  Exact<uint32_t> code;
  Exact<float> weight;
  bool is_timed;
  int64_t num_src, first_src;

  EdgeList<Id> view(int64_t num_dst, int64_t slot, int64_t num_slots) const {
    return {src.data(), dst.data(), src.size(), num_src, num_dst, slot, num_slots};
  }
};

template <class Id>
List<Id> random_list(Choices& choose, int64_t num_dst, int64_t first_src, bool weighted) {
  const int64_t num_src = choose.size(20);
  const int64_t num_edges = num_src && num_dst ? choose.size(40 * num_dst) : 0;
  List<Id> list{Exact<Id>(num_edges),
                Exact<Id>(num_edges),
                Exact<uint32_t>(num_edges),
                Exact<float>(weighted ? num_edges : 0),
                choose.flag(),
                num_src,
                first_src};
  const int64_t reach = num_dst ? 1 + choose.size(num_dst - 1) : 1;
  const int shift = int(choose.below(33));  // ties, codes that lie evenly, codes of the upper bits
  for (int64_t e = 0; e < num_edges; ++e) {
    list.src[e] = Id(choose.below(num_src));
    list.dst[e] = Id(choose.below(reach));
    list.code[e] = shift == 32 ? uint32_t(num_edges - e) : choose.word() >> shift;
    if (choose.one_in(4)) list.code[e] = choose.flag() ? 0 : UINT32_MAX;
    if (weighted) list.weight[e] = float(e) + 0.5F;
  }
  if (num_edges && choose.one_in(16)) {
    const bool of_src = choose.flag();
    (of_src ? list.src : list.dst)[choose.below(num_edges)] =
        bad_id<Id>(choose, of_src ? num_src : num_dst);
  }
  return list;
}

template <class Id>
bool is_sound(const List<Id>& list, int64_t num_dst) {
  const auto within = [](const Exact<Id>& ids, int64_t count) {
    return std::all_of(ids.begin(), ids.end(), [=](Id id) { return in_range(id, count); });
  };
  return within(list.src, list.num_src) && within(list.dst, num_dst);
}

struct Runs {
  Exact<int64_t> indptr, run_ptr, least, bound;
  Exact<int32_t> indices;
  Exact<uint32_t> time;
};

bool are_runs(const Runs& runs, int64_t num_dst, int64_t num_slots) {
  if (num_dst == 0) return true;  // nothing to check: ops/ looks at the one entry that there is
  for (int64_t r = 0; r <= num_dst * num_slots; ++r) {
    const int64_t begin = runs.run_ptr[r];
    if (r % num_slots == 0 && begin != runs.indptr[r / num_slots]) return false;
    if (r == num_dst * num_slots) break;
    if (begin < 0 || runs.run_ptr[r + 1] < begin || runs.run_ptr[r + 1] > runs.indices.size()) {
      return false;
    }
    for (int64_t e = begin; e < runs.run_ptr[r + 1]; ++e) {
      const int64_t slot = r % num_slots;
      if (runs.indices[e] < runs.least[slot] || runs.indices[e] >= runs.bound[slot]) return false;
      if (e > begin && runs.time[e] < runs.time[e - 1]) return false;
    }
  }
  return true;
}

void check_spoiled(Choices& choose, Runs& runs, int64_t num_dst, int64_t num_slots) {
  for (int64_t left = choose.size(2); left > 0; --left) {
    int64_t& end = runs.run_ptr[choose.below(runs.run_ptr.size())];
    const int64_t edge = runs.indices.size() ? choose.below(runs.indices.size()) : -1;
    switch (choose.below(4)) {
      case 0:
        end = choose.one_of({INT64_MIN, INT64_MAX, int64_t(-1), runs.indices.size(), int64_t(0)});
        break;
      case 1:
        end = int64_t(uint64_t(end) + uint64_t(choose.between(-2, 2)));
        break;
      case 2:
        if (edge >= 0) runs.indices[edge] = choose.one_of<int32_t>({0, -1, INT32_MAX, 20, 40});
        break;
      default:
        if (edge >= 0) runs.time[edge] = choose.one_of<uint32_t>({0, UINT32_MAX, runs.time[0]});
    }
  }
  const Csc<int32_t> graph{runs.indptr.data(), runs.indices.data(), num_dst, nullptr};
  const Outcome outcome = outcome_of([&] {
    check_runs(graph, {0, num_dst, 0, num_slots, runs.least.data(), runs.bound.data()},
               runs.run_ptr.data(), runs.time.data());
  });
  const bool sound = are_runs(runs, num_dst, num_slots);
  expect(outcome == (sound ? Outcome::kDone : Outcome::kGraphFormatError),
         sound ? "sound" : "broken", " runs: ", outcome);
}

// Cells joined to parts at random: of no run, of no edge, of all.
struct Division {
  Exact<uint16_t> part_of_cell;
  Exact<int64_t> first_run, begin;
};

Division divide(Choices& choose, const Exact<int64_t>& num_in_cell, int shift, int64_t num_runs) {
  Division parts{Exact<uint16_t>(num_in_cell.size()), Exact<int64_t>(0), Exact<int64_t>(0)};
  std::vector<int64_t> first_run{0}, begin{0};
  int64_t edges = 0;
  for (int64_t cell = 0; cell < num_in_cell.size(); ++cell) {
    while (choose.one_in(3)) {
      first_run.push_back(std::min(cell << shift, num_runs));
      begin.push_back(edges);
    }
    parts.part_of_cell[cell] = uint16_t(begin.size() - 1);
    edges += num_in_cell[cell];
  }
  first_run.push_back(num_runs);
  begin.push_back(edges);
  parts.first_run = Exact<int64_t>(first_run);
  parts.begin = Exact<int64_t>(begin);
  return parts;
}

template <class Id, class Ptr>
void build(Choices& choose) {
  const int64_t num_dst = choose.size(30), num_slots = choose.between(1, 3);
  const int64_t num_runs = num_dst * num_slots;
  const bool weighted = choose.flag(), timed = !choose.one_in(4);
  std::vector<List<Id>> lists;
  for (int64_t slot = 0; slot < num_slots; ++slot) {
    lists.push_back(random_list<Id>(choose, num_dst, slot * 20, weighted));
    lists.back().is_timed &= timed;
  }
  const int shift = int(choose.size(5));
  Exact<int64_t> num_in_cell((num_runs >> shift) + 1, 0);
  const Outcome outcome = outcome_of([&] {
    for (int64_t slot = 0; slot < num_slots; ++slot) {
      count_cells("list", lists[size_t(slot)].view(num_dst, slot, num_slots), shift,
                  num_in_cell.data());
    }
  });
  if (!std::all_of(lists.begin(), lists.end(),
                   [&](auto& list) { return is_sound(list, num_dst); })) {
    expect(outcome == Outcome::kGraphFormatError, "ids out of range: ", outcome);
    return;
  }
  expect(outcome == Outcome::kDone, "sound edges: ", outcome);
  const Division parts = divide(choose, num_in_cell, shift, num_runs);
  const int64_t num_parts = parts.begin.size() - 1, num_edges = parts.begin[num_parts];
  Exact<int64_t> next(num_parts);
  std::copy_n(parts.begin.data(), num_parts, next.data());

  Runs runs{Exact<int64_t>(num_dst + 1),   Exact<int64_t>(num_runs + 1),
            Exact<int64_t>(num_slots),     Exact<int64_t>(num_slots),
            Exact<int32_t>(num_edges, -7), Exact<uint32_t>(num_edges, timed ? 7 : 0)};
  Exact<Ptr> run_ptr(num_runs + 1, 0);
  Exact<uint32_t> run(num_edges);
  Exact<uint16_t> order(num_edges, 7);
  Exact<float> weight(weighted ? num_edges : 0);
  uint32_t* time = timed ? runs.time.data() : nullptr;
  std::vector<Column> sorted{{nullptr, order.data(), 2}};
  if (weighted) sorted.push_back({nullptr, weight.data(), 4});
  std::vector<std::tuple<Id, int64_t, uint32_t, int64_t>> wanted;
  for (int64_t slot = 0; slot < num_slots; ++slot) {
    const List<Id>& list = lists[size_t(slot)];
    Exact<uint16_t> places(list.src.size());
    std::iota(places.data(), places.data() + places.size(), uint16_t(0));
    std::vector<Column> given = sorted;
    given[0].given = places.data();
    if (weighted) given[1].given = list.weight.data();
    divide_edges(list.view(num_dst, slot, num_slots), list.first_src,
                 list.is_timed ? list.code.data() : nullptr,
                 {shift, parts.part_of_cell.data(), next.data(), num_parts}, run.data(),
                 runs.indices.data(), time, given);
    runs.least[slot] = list.first_src;
    runs.bound[slot] = list.first_src + list.num_src;
    for (int64_t e = 0; e < list.src.size(); ++e) {
      wanted.emplace_back(list.dst[e], slot, list.is_timed ? list.code[e] : 0, e);
    }
  }
  sorted.push_back({nullptr, runs.indices.data(), 4});
  sort_parts(parts.first_run.data(), parts.begin.data(), num_parts, run.data(), time, sorted,
             run_ptr.data());
  std::copy(run_ptr.begin(), run_ptr.end(), runs.run_ptr.data());
  std::sort(wanted.begin(), wanted.end());
  int64_t position = 0;
  for (const auto& [dst, slot, code, edge] : wanted) {
    const List<Id>& list = lists[size_t(slot)];
    const int64_t r = dst * num_slots + slot;
    expect(runs.run_ptr[r] <= position && position < runs.run_ptr[r + 1], "run ", r, " is [",
           runs.run_ptr[r], ", ", runs.run_ptr[r + 1], ") without position ", position);
    expect(runs.indices[position] == list.first_src + list.src[edge] &&
               runs.time[position] == code && order[position] == edge &&
               (!weighted || weight[position] == list.weight[edge]),
           "position ", position, " is not edge ", edge, " of slot ", slot, " into ", dst);
    ++position;
  }
  for (int64_t v = 0; v <= num_dst; ++v) runs.indptr[v] = runs.run_ptr[v * num_slots];
  check_spoiled(choose, runs, num_dst, num_slots);
}

}  // namespace

LG_FUZZ_TARGET(build_runs) {
  choose.flag() ? build<int32_t, uint32_t>(choose) : build<int64_t, int64_t>(choose);
}

}  // namespace lg::fuzz
