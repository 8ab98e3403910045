#include "server/cli/worker_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/hardware/check_text.h"
#include "proto/enum_text.h"
#include "proto/worker_slots.h"
#include "server/cli/job_text.h"
#include "server/cli/output.h"

namespace legoai::cli {
namespace {

std::string Id(const std::string& name) { return name.substr(name.rfind('/') + 1); }

std::string StateText(const v1::Worker& worker) {
  const std::string state = EnumText(worker.state());
  if (!worker.connected()) return Colored(Color::kRed, state + ", not connected");
  if (worker.health().checking()) return Colored(Color::kYellow, state + ", checking");
  const int64_t faulty = worker.slots() - SoundSlots(worker);
  if (faulty > 0) return Colored(Color::kRed, absl::StrCat(state, ", ", faulty, faulty == 1 ? " slot faulty" : " slots faulty"));
  return Colored(worker.state() == v1::READY ? Color::kGreen : Color::kYellow, state);
}

std::string MemoryText(const v1::Worker& worker) {
  const std::string all = BytesText(static_cast<double>(worker.host_memory_bytes()));
  return worker.has_use() ? absl::StrCat(BytesText(static_cast<double>(worker.use().memory_bytes())), " of ", all) : all;
}

std::string FaultsText(const v1::WorkerHealth& health) {
  std::string text;
  if (!health.fault().empty()) absl::StrAppend(&text, Colored(Color::kRed, "gets nothing new"), ": ", health.fault(), "\n");
  for (const v1::SlotFault& fault : health.slot_faults()) {
    absl::StrAppend(&text, Colored(Color::kRed, absl::StrCat("slot ", fault.slot(), " gets nothing new")), " since ",
                    TimeText(fault.time_us()), " (", EnumText(fault.cause()), "): ", fault.reason(), "\n");
  }
  return text;
}

// "slot 0: GPU 3, NVIDIA H100 80GB HBM3, GPU-8f..., slowed down: hw_thermal, 1 uncorrected ECC error".
std::string DevicesText(const v1::Worker& worker) {
  std::string text;
  for (int slot = 0; slot < worker.slot_devices_size(); ++slot) {
    const v1::SlotDevice& device = worker.slot_devices(slot);
    absl::StrAppend(&text, "slot ", slot, ": GPU ", device.index(), ", ", device.name(), ", ", device.uuid());
    for (const v1::GpuUse& gpu : worker.use().gpus()) {
      if (gpu.index() != device.index()) continue;
      if (gpu.has_temperature_celsius()) absl::StrAppend(&text, absl::StrFormat(", %.0f °C", gpu.temperature_celsius()));
      if (gpu.has_power_watts()) absl::StrAppend(&text, absl::StrFormat(", %.0f W", gpu.power_watts()));
      if (!gpu.slowdowns().empty())
        absl::StrAppend(&text, ", ", Colored(Color::kYellow, "slowed down: " + absl::StrJoin(gpu.slowdowns(), ", ")));
      if (gpu.uncorrected_ecc_errors() > 0) absl::StrAppend(&text, ", uncorrected ECC errors: ", gpu.uncorrected_ecc_errors());
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

// Of pairs that have passed: how many, and the slowest.
std::string PairsText(const std::vector<const v1::CheckResult*>& pairs) {
  const auto slowest = *std::min_element(pairs.begin(), pairs.end(), [](const v1::CheckResult* a, const v1::CheckResult* b) {
    return a->received_bytes_per_second() < b->received_bytes_per_second();
  });
  if (pairs.size() == 1) return absl::StrCat("  ", sim::ResultText(*slowest), "\n");
  return absl::StrCat("  all_gather of ", pairs.size(), " pairs: passed; the slowest: ", sim::ResultText(*slowest), "\n");
}

}  // namespace

std::string CheckText(const v1::MachineCheck& check) {
  const std::string begin = TimeText(check.start_time_us());
  std::string text = absl::StrFormat("check %d of %s took %.1f s:\n", check.number(), begin, check.seconds());
  std::vector<const v1::CheckResult*> pairs;
  for (const v1::CheckResult& result : check.results()) {
    if (result.passed() && result.slots_size() == 2) {
      pairs.push_back(&result);
      continue;
    }
    const std::string line = sim::ResultText(result);
    absl::StrAppend(&text, "  ", result.passed() ? line : Colored(Color::kRed, line), "\n");
  }
  return pairs.empty() ? text : text + PairsText(pairs);
}

std::string WorkerText(const v1::Worker& worker) {
  std::string text = FaultsText(worker.health()) + DevicesText(worker);
  if (worker.health().has_check()) absl::StrAppend(&text, CheckText(worker.health().check()));
  return text.empty() ? text : "\n" + text;
}

std::string WorkersTable(const google::protobuf::RepeatedPtrField<v1::Worker>& workers) {
  Table table(
      {"<worker", "<state", "<pool", "<device", "slots", "free", "processor", "memory", "<host", "<last heard of", "<jobs"});
  for (const v1::Worker& worker : workers) {
    std::vector<std::string> jobs;
    for (const auto& use : worker.used())
      jobs.push_back(absl::StrCat(use.job().empty() ? "another project's" : Id(use.job()), " x", use.slots()));
    table.Add({Id(worker.name()), StateText(worker), worker.pool(), worker.device().type(), absl::StrCat(worker.slots()),
               absl::StrCat(FreeSlots(worker)),
               worker.use().has_processor_share() ? PercentText(worker.use().processor_share()) : "-", MemoryText(worker),
               worker.host(), TimeText(worker.last_seen_time_us()), absl::StrJoin(jobs, ", ")});
  }
  return table.Text();
}

}  // namespace legoai::cli
