// bind.cpp: the extension module lightning_gnnload.ops._kernels.
#include <unistd.h>

#include <chrono>

#include "bind/sampler.h"
#include "common/error.h"
#include "common/isa.h"
#include "common/signals.h"

namespace lg::bind {
namespace {

// Raises the Python class `name` of `module`, made of `value`, or of what it holds where it is a tuple.
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
  } catch (const CudaUnavailableError& error) {
    raise(kErrors, "CudaUnavailableError", nb::str(error.what()));
  } catch (const ForkError& error) {
    raise(kErrors, "ForkError", nb::str(error.what()));
  } catch (const CudaCallError& error) {
    raise(kErrors, "CudaCallError", nb::make_tuple(error.name.c_str(), error.what()));
  } catch (const ArenaTooSmall& signal) {
    raise("lightning_gnnload.ops.dispatch", "ArenaTooSmall", nb::int_(signal.needed_bytes));
  }
}

// Runs the handlers of signals that have come, and throws what they raise. Python runs them in its main
// thread alone, the process's first one, or the one that forked it.
void run_signal_handlers() {
  using Clock = std::chrono::steady_clock;
  // The GIL may be waited for, 5 ms or longer, where other threads compute in Python.
  constexpr std::chrono::milliseconds kPause(100);
  static thread_local Clock::time_point next;
  const Clock::time_point now = Clock::now();
  if (now < next || gettid() != getpid()) return;
  next = now + kPause;
  nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace

std::vector<Definition>& definitions() {
  static std::vector<Definition> all;
  return all;
}

NB_MODULE(_kernels, m) {
  nb::set_leak_warnings(false);  // a Workspace may well live until the interpreter ends
  nb::register_exception_translator(translate);
  look_at_signals = run_signal_handlers;
  nb::class_<Workspace>(m, "Workspace").def(nb::init<int64_t, bool>(), "num_nodes"_a, "use_hash"_a);
  nb::class_<AnyInput>(m, "SamplerInput")
      .def(nb::init<Workspace&, Array<const int64_t>, AnyInput::Indices, Array<const int64_t>,
                    uint64_t, uint32_t, uint32_t, uint32_t, Names, Bytes>(),
           "workspace"_a, "indptr"_a.noconvert(), "indices"_a.noconvert(), "seeds"_a.noconvert(),
           "seed"_a, "epoch"_a, "step"_a, "hop"_a, "names"_a.noconvert().none(),
           "arena"_a.noconvert(), nb::keep_alive<1, 2>())
      .def_prop_rw(
          "max_local", [](const AnyInput& input) { return input.batch.max_local; },
          [](AnyInput& input, int64_t max_local) { input.batch.max_local = max_local; });
  m.attr("MAX_BUDGET") = kMaxDraws64;
  m.attr("MAX_FANOUT") = kMaxDraws;
  m.attr("MAX_HOPS") = kMaxHops;
  m.attr("MAX_HOP_DRAWS") = kMaxHopDraws;
  m.def("best_isa", [] { return int(best_isa()); });
  m.def("used_isa", [] { return int(used_isa()); });
  m.def("set_isa", [](int isa) { set_isa(Isa(isa)); }, "isa"_a);
  for (const Definition define : definitions()) define(m);
}

}  // namespace lg::bind
