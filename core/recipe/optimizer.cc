#include "core/recipe/optimizer.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "proto/json/reflect.h"

namespace legoai::parallel {
namespace {

constexpr int64_t kMostIterations = 99;  // as torch.optim.Muon

constexpr absl::string_view kOptimizers[] = {"AdamW", "Adam", "Muon", "SGD"};

class Checker {
 public:
  explicit Checker(const v1::OptimizerSection& section) : section_(section) {}

  void Number(const char* key, double value, bool ok, const char* remedy) {
    if (!std::isfinite(value)) return Fail(key, absl::StrCat(value), "must be a finite number");
    if (!ok) Fail(key, Tree(value).dump(), remedy);
  }
  // `is_set`: to another value than the default.
  void OnlyOf(std::initializer_list<absl::string_view> names, const char* key, bool is_set, const std::string& value) {
    for (absl::string_view name : names) {
      if (section_.name() == name) return;
    }
    if (!is_set) return;
    Fail(key, value, absl::StrCat("is a key of ", absl::StrJoin(names, ", "), ": remove it with ", section_.name()));
  }
  void Fail(const char* key, const std::string& value, const std::string& remedy) {
    faults_.push_back({absl::StrCat("optimizer.", key), value, remedy});
  }
  std::vector<OptimizerFault> Take() { return std::move(faults_); }

 private:
  const v1::OptimizerSection& section_;
  std::vector<OptimizerFault> faults_;
};

void CheckNumbers(const v1::OptimizerSection& o, Checker* check) {
  const auto share = [&](const char* key, double value) {
    check->Number(key, value, value >= 0 && value < 1, "must be at least 0 and below 1");
  };
  check->Number("lr", o.lr(), o.lr() > 0, "must be above 0");
  check->Number("eps", o.eps(), o.eps() > 0, "must be above 0");
  check->Number("weight_decay", o.weight_decay(), o.weight_decay() >= 0, "must be at least 0");
  share("beta1", o.beta1());
  share("beta2", o.beta2());
  if (o.has_momentum()) share("momentum", o.momentum());
  if (o.has_muon_lr()) check->Number("muon_lr", o.muon_lr(), o.muon_lr() > 0, "must be above 0");
  if (o.muon_ns_steps() < 1 || o.muon_ns_steps() > kMostIterations) {
    check->Fail("muon_ns_steps", absl::StrCat(o.muon_ns_steps()), absl::StrCat("must lie between 1 and ", kMostIterations));
  }
  if (o.muon_adjust_lr_fn() != "original" && o.muon_adjust_lr_fn() != "match_rms_adamw") {
    check->Fail("muon_adjust_lr_fn", o.muon_adjust_lr_fn(), "must be one of \"original\", \"match_rms_adamw\"");
  }
}

void CheckOwners(const v1::OptimizerSection& o, const v1::OptimizerSection& defaults, Checker* check) {
  const auto of_adam = [&](const char* key, double value, double standard) {
    check->OnlyOf({"AdamW", "Adam", "Muon"}, key, value != standard, Tree(value).dump());
  };
  of_adam("beta1", o.beta1(), defaults.beta1());
  of_adam("beta2", o.beta2(), defaults.beta2());
  of_adam("eps", o.eps(), defaults.eps());
  check->OnlyOf({"SGD", "Muon"}, "momentum", o.has_momentum(), Tree(o.momentum()).dump());
  check->OnlyOf({"SGD", "Muon"}, "nesterov", o.has_nesterov(), o.nesterov() ? "true" : "false");
  check->OnlyOf({"Muon"}, "muon_lr", o.has_muon_lr(), Tree(o.muon_lr()).dump());
  check->OnlyOf({"Muon"}, "muon_ns_steps", o.muon_ns_steps() != defaults.muon_ns_steps(), absl::StrCat(o.muon_ns_steps()));
  check->OnlyOf({"Muon"}, "muon_adjust_lr_fn", o.muon_adjust_lr_fn() != defaults.muon_adjust_lr_fn(), o.muon_adjust_lr_fn());
  const bool moves = o.name() == "SGD" || o.name() == "Muon";
  if (moves && o.nesterov() && MomentumOf(o) == 0) {
    check->Fail("nesterov", "true", "needs a momentum above 0: set optimizer.momentum, or remove nesterov");
  }
}

}  // namespace

double MomentumOf(const v1::OptimizerSection& section) {
  return section.has_momentum() ? section.momentum() : section.name() == "Muon" ? 0.95 : 0.0;
}

bool NesterovOf(const v1::OptimizerSection& section) {
  return section.has_nesterov() ? section.nesterov() : section.name() == "Muon";
}

double MuonLrOf(const v1::OptimizerSection& section) { return section.has_muon_lr() ? section.muon_lr() : section.lr(); }

std::vector<OptimizerFault> FaultsOfOptimizer(const v1::OptimizerSection& section, const v1::OptimizerSection& defaults) {
  Checker check(section);
  const bool known = std::find(std::begin(kOptimizers), std::end(kOptimizers), section.name()) != std::end(kOptimizers);
  if (!known) {
    check.Fail("name", section.name(), absl::StrCat("must be one of \"", absl::StrJoin(kOptimizers, "\", \""), "\""));
  }
  CheckNumbers(section, &check);
  if (known) CheckOwners(section, defaults, &check);
  return check.Take();
}

}  // namespace legoai::parallel
