#include "fuzz/target.h"

#include "common/error.h"
#include "common/isa.h"

namespace lg::fuzz {

std::vector<Target>& registered_targets() {
  static std::vector<Target> targets;
  return targets;
}

void run_case(const Target& target, Choices& choose) {
  set_isa(Isa(choose.below(int(best_isa()) + 1)));
  target.run(choose);
}

Outcome outcome_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const SeedError&) {
    return Outcome::kSeedError;
  } catch (const GraphFormatError&) {
    return Outcome::kGraphFormatError;
  } catch (const SamplerConfigError&) {
    return Outcome::kSamplerConfigError;
  } catch (const CacheShareError&) {
    return Outcome::kCacheShareError;
  }
  return Outcome::kDone;
}

Part::Part(Outcome outcome) : kind_(kText) {
  constexpr const char* kNames[] = {"done", "SeedError", "GraphFormatError", "SamplerConfigError",
                                    "CacheShareError"};
  text_ = kNames[int(outcome)];
}

void Part::append_to(std::string& message) const {
  message += kind_ == kText      ? text_
             : kind_ == kInteger ? std::to_string(integer_)
                                 : std::to_string(float_);
}

void fail_expectation(std::initializer_list<Part> otherwise) {
  std::string message;
  for (const Part& part : otherwise) part.append_to(message);
  throw WrongResult(message);
}

}  // namespace lg::fuzz
