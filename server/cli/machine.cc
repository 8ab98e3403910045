#include "server/cli/machine.h"

#include <cstdio>

#include "core/hardware/catalog.h"
#include "core/process/programs.h"
#include "proto/status.h"

namespace legoai::cli {

absl::StatusOr<std::string> FindSim() { return launch::FindProgram("lego-sim", "simulator/estimate", "LEGOAI_SIM"); }
absl::StatusOr<std::string> FindTrainer() { return launch::FindTrainer(); }
absl::StatusOr<std::string> FindMeasure() { return launch::FindProgram("lego-measure", "simulator/measure", "LEGOAI_MEASURE"); }

void WarnIfMeasuredBusy(const v1::Device& device) {
  static std::string said;  // of the many clusters of one call
  const std::string text = sim::MeasuredBusyText(device);
  if (text == said) return;
  said = text;
  if (!text.empty()) std::fprintf(stderr, "warning: %s\n", text.c_str());
}

absl::StatusOr<v1::Cluster> ResolveCluster(const std::string& text) {
  ASSIGN_OR_RETURN(auto host, LoadHostDevice());
  auto cluster = sim::ParseCluster(text, host.has_value() ? &*host : nullptr);
  if (cluster.ok()) WarnIfMeasuredBusy(cluster->device());
  return cluster;
}

}  // namespace legoai::cli
