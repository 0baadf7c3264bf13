// bind.cpp: the extension module lightning_gnnload.ops._kernels.
#include "bind/bind.h"

#include "common/error.h"
#include "common/isa.h"

namespace lg::bind {
namespace {

// Raises `value` as the Python class `name` of `module`.
void raise(const char* module, const char* name, nb::object value) {
  nb::object type = nb::module_::import_(module).attr(name);
  PyErr_SetObject(type.ptr(), value.ptr());
}

void translate(const std::exception_ptr& pointer, void*) {
  constexpr const char* kErrors = "lightning_gnnload.errors";
  try {
    std::rethrow_exception(pointer);
  } catch (const SeedError& error) {
    raise(kErrors, "SeedError", nb::str(error.what()));
  } catch (const GraphFormatError& error) {
    raise(kErrors, "GraphFormatError", nb::str(error.what()));
  } catch (const SamplerConfigError& error) {
    raise(kErrors, "SamplerConfigError", nb::str(error.what()));
  } catch (const FeatureFileError& error) {
    raise(kErrors, "FeatureFileError", nb::str(error.what()));
  } catch (const CacheShareError& error) {
    raise(kErrors, "CacheShareError", nb::str(error.what()));
  } catch (const ArenaTooSmall& signal) {
    raise("lightning_gnnload.ops.dispatch", "ArenaTooSmall", nb::int_(signal.needed_bytes));
  }
}

}  // namespace

NB_MODULE(_kernels, m) {
  nb::set_leak_warnings(false);  // a Workspace may well live until the interpreter ends
  nb::register_exception_translator(translate);
  nb::class_<Workspace>(m, "Workspace").def(nb::init<int64_t, bool>(), "num_nodes"_a, "use_hash"_a);
  m.attr("MAX_BUDGET") = kMaxDraws64;
  m.attr("MAX_FANOUT") = kMaxDraws;
  m.attr("MAX_HOPS") = kMaxHops;
  m.def("best_isa", [] { return int(best_isa()); });
  m.def("used_isa", [] { return int(used_isa()); });
  m.def("set_isa", [](int isa) { set_isa(Isa(isa)); }, "isa"_a);
  bind_add_hop(m);
  bind_breadth_first(m);
  bind_build_alias(m);
  bind_check_csc(m);
  bind_coo_to_csc(m);
  bind_deal_nodes(m);
  bind_draw_layer(m);
  bind_deal_seeds(m);
  bind_gather_mapped(m);
  bind_dynamic_cache(m);
  bind_gather_quantized(m);
  bind_gather_rows(m);
  bind_gather_tiered(m);
  bind_grow_blocks(m);
  bind_importance_tree(m);
  bind_index_edge_types(m);
  bind_join_blocks(m);
  bind_link_blocks(m);
  bind_random_keys(m);
  bind_random_walk(m);
  bind_rank_visits(m);
  bind_round_robin(m);
  bind_read_rows(m);
  bind_sample_layers(m);
  bind_sample_labor(m);
  bind_sample_neighbors(m);
  bind_sample_typed(m);
  bind_sample_walks(m);
  bind_sample_weighted(m);
  bind_sample_shadow(m);
  bind_spread_parts(m);
  bind_step_walks(m);
  bind_settle_nodes(m);
  bind_vote_nodes(m);
}

}  // namespace lg::bind
