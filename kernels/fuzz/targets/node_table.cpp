// Both tables number nodes in order of first occurrence, batch after batch, however many they are.
#include "common/node_table.h"

#include <unordered_map>

#include "fuzz/exact.h"
#include "fuzz/target.h"

namespace lg::fuzz {
namespace {

template <class Table>
void insert_batch(Choices& choose, Table& table, int64_t num_graph_nodes, int64_t most) {
  const int64_t num_inserted = choose.size(most);
  Exact<int64_t> ids(num_inserted + 1);
  NodeList list{ids.data(), 0};
  table.reserve(list, std::min(num_inserted, num_graph_nodes));
  std::unordered_map<int64_t, int32_t> wanted;
  for (int64_t i = 0; i < num_inserted; ++i) {
    const int64_t node = choose.below(num_graph_nodes);
    const int32_t local = wanted.try_emplace(node, int32_t(wanted.size())).first->second;
    const int32_t got = table.insert(node, list);
    expect(got == local && ids[local] == node, "node ", node, " is number ", got, ", not ", local);
  }
  expect(list.count == int64_t(wanted.size()), list.count, " nodes, not ", wanted.size());
  table.clear(list);
}

// Every node of the graph, as a batch of more than the 2^22 nodes that stamps number at first.
template <class Table>
void insert_all(Table& table, int64_t num_nodes) {
  Exact<int64_t> ids(num_nodes + 1);
  NodeList list{ids.data(), 0};
  int64_t room = 0;
  for (int64_t i = 0; i < num_nodes; ++i) {
    if (i == room) table.reserve(list, room = std::min(num_nodes, 2 * room + 1000));
    const int32_t got = table.insert(num_nodes - 1 - i, list);
    expect(got == i, "new node ", i, " is number ", got);
  }
  for (int64_t i = 0; i < num_nodes; i += 1000) {
    const int32_t got = table.insert(num_nodes - 1 - i, list);
    expect(got == i, "known node ", i, " is number ", got);
  }
  table.clear(list);
}

template <class Table>
void insert_batches(Choices& choose, Table table, int64_t num_graph_nodes) {
  // Stamps count to 2^10 batches before they start anew.
  for (int64_t left = choose.one_in(100) ? 1100 : choose.between(1, 3); left > 0; --left) {
    insert_batch(choose, table, num_graph_nodes, left > 3 ? 5 : 500);
  }
  // The hash table starts with 2^16 slots, and must grow more than once.
  if (choose.one_in(500)) insert_batch(choose, table, num_graph_nodes, 150'000);
}

}  // namespace

LG_FUZZ_TARGET(node_table) {
  if (choose.one_in(2000)) {
    constexpr int64_t kMany = (int64_t(1) << 22) + 5;
    StampTable table(kMany);
    insert_all(table, kMany);
    insert_batch(choose, table, kMany, 500);
  } else if (choose.flag()) {
    const int64_t num_nodes = 1 + choose.size(choose.one_in(500) ? 200'000 : 1000);
    insert_batches(choose, StampTable(num_nodes), num_nodes);
  } else {
    insert_batches(choose, HashTable(), int64_t(1) << choose.between(0, 48));
  }
}

}  // namespace lg::fuzz
