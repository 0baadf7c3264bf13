#include <nanobind/stl/tuple.h>

#include "bind/bind.h"
#include "induced_edges/induced_edges.h"

namespace lg::bind {

template <class T>
using Made = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

// An array of NumPy's that frees its memory by itself.
template <class T>
class Copy {
 public:
  void of(const std::vector<T>& source, int64_t count) {
    memory_ = std::make_unique<T[]>(size_t(count));
    count_ = size_t(count);
    std::copy_n(source.data(), count, memory_.get());
  }
  Made<T> made() {
    T* data = memory_.get();
    nb::capsule owner(data, [](void* held) noexcept { delete[] static_cast<T*>(held); });
    memory_.release();
    return Made<T>(data, {count_}, owner);
  }

 private:
  std::unique_ptr<T[]> memory_;
  size_t count_ = 0;
};

LG_BIND_INDEX(Index, m) {
  m.def(
      "induced_edges",
      [](Workspace& workspace, Array<const int64_t> indptr, Array<const Index> indices,
         Array<const int64_t> nodes, Array<const int64_t> ptr, int64_t max_local) {
        Copy<int32_t> starts, places;
        Copy<int64_t> positions;
        {
          const nb::gil_scoped_release no_gil;
          const InducedEdgesRequest<Index> request{csc(indptr, indices),    nodes.data(),
                                                   int64_t(nodes.size()),   ptr.data(),
                                                   int64_t(ptr.size()) - 1, max_local};
          induced_edges(workspace, request, [&](const Edges& edges, int64_t num_edges) {
            starts.of(edges.indptr, request.num_nodes + 1);
            places.of(edges.indices, num_edges);
            positions.of(edges.ids, num_edges);
          });
        }
        return std::make_tuple(starts.made(), places.made(), positions.made());
      },
      "workspace"_a, "indptr"_a.noconvert(), "indices"_a.noconvert(), "nodes"_a.noconvert(),
      "ptr"_a.noconvert(), "max_local"_a = kMaxLocal);
}

}  // namespace lg::bind
