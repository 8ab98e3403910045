#include "server/cli/machine.h"

#include <google/protobuf/text_format.h>

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/files.h"
#include "core/hardware/catalog.h"
#include "core/process/child_process.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/cli/job.h"

namespace legoai::cli {
namespace {

// What a program prints; it inherits standard error.
absl::StatusOr<std::string> OutputOf(const std::string& program) {
  const std::string command = "exec '" + program + "'";
  FILE* pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return absl::ResourceExhaustedError(absl::StrCat("cannot start ", program));
  std::string text;
  char buffer[4096];
  while (const size_t got = fread(buffer, 1, sizeof(buffer), pipe)) text.append(buffer, got);
  if (const int status = pclose(pipe); status != 0) {
    return absl::InternalError(absl::StrCat(program, " failed (wait status ", status, "); its message is above"));
  }
  return text;
}

// Where the result is to be kept must be known before the work.
absl::Status CheckWritable(const std::string& field, const std::string& path) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  if (!error) std::filesystem::create_directories(absolute.parent_path(), error);
  if (!error) return CheckOutput(field, absolute.string());
  return FieldError(field, path, absl::StrCat("cannot be written: ", error.message(), "; name a file in a folder of yours"));
}

}  // namespace

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

absl::StatusOr<v1::Device> MeasureHost(const std::string& field, const std::string& path) {
  ASSIGN_OR_RETURN(const auto program, FindMeasure());
  RETURN_IF_ERROR(CheckWritable(field, path));
  std::fprintf(stderr, "measuring this machine with all cores busy, about ten seconds ...\n");
  ASSIGN_OR_RETURN(const auto text, OutputOf(program));
  v1::Device device;
  if (!google::protobuf::TextFormat::ParseFromString(text, &device)) {
    return absl::InternalError(absl::StrCat(program, " did not print a Device message"));
  }
  RETURN_IF_ERROR(checkpoint::WriteFile(path, text));
  WarnIfMeasuredBusy(device);
  return device;
}

}  // namespace legoai::cli
