// lego-measure: without arguments this machine's CPU as a Device message (`lego hardware --measure`); with --device=cuda the
// calibration of its first GPU (docs/calibration.md). Both in text format, the first on standard output.
#include <errno.h>
#include <google/protobuf/text_format.h>
#include <signal.h>
#include <sys/prctl.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "proto/errors.h"
#include "simulator/measure/host_measurement.h"
#include "simulator/measure/calibration_run.h"
#include "worker/comm/cpu_tensors.h"

ABSL_FLAG(std::string, device, "", "cuda: calibrate the first visible GPU; without it: measure this machine's CPU");
ABSL_FLAG(std::string, out, "", "with --device: the calibration file; standard output if not given");
ABSL_FLAG(double, seconds, 150, "with --device: when to end; what was not reached is counted in the file");
ABSL_FLAG(bool, quick, false, "with --device: small shapes, to try the program; --device=cpu needs it");

namespace legoai::sim {
namespace {

constexpr int kFailed = 1, kWrongCall = 2;
constexpr double kTellSeconds = 2, kSaveSeconds = 20;

int Report(const absl::Status& status) {
  std::fprintf(stderr, "lego-measure: %s\n", std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? kWrongCall : kFailed;
}

template <class Message>
std::string TextOf(const Message& message) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return text;
}

std::string PartOf(const std::string& path) { return path + ".part"; }

std::error_code WriteText(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  return file.fail() ? std::error_code(errno != 0 ? errno : EIO, std::generic_category()) : std::error_code();
}

absl::Status NotWritten(const std::string& path, const std::error_code& error) {
  return FieldError("--out", path, "cannot be written: " + error.message());
}

// Before the work. What is there already stays until there is something to replace it.
absl::Status CheckWritable(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::error_code error = WriteText(PartOf(path), ""), ignored;
  std::filesystem::remove(PartOf(path), ignored);
  if (!error && std::filesystem::is_directory(path, ignored)) error = std::make_error_code(std::errc::is_a_directory);
  return error ? NotWritten(path, error) : absl::OkStatus();
}

// At once under its own name: who reads it meanwhile has it whole.
absl::Status Save(const std::string& path, const std::string& text) {
  std::error_code error = WriteText(PartOf(path), text);
  if (!error) std::filesystem::rename(PartOf(path), path, error);
  return error ? NotWritten(path, error) : absl::OkStatus();
}

absl::Status Keep(const v1::Calibration& calibration) {
  const std::string path = absl::GetFlag(FLAGS_out);
  if (!path.empty()) return Save(path, TextOf(calibration));
  std::fputs(TextOf(calibration).c_str(), stdout);
  return std::fflush(stdout) == 0 ? absl::OkStatus() : absl::DataLossError("the result could not all be written");
}

// Now and then: a line for who waits, and what there is so far for who ends us.
class Reporter {
 public:
  void operator()(const v1::Calibration& so_far, const std::string& what) {
    const auto now = Clock::now();
    if (Since(told_, now) >= kTellSeconds) {
      std::fprintf(stderr, "lego-measure: %.0f s: %s\n", Since(began_, now), what.c_str());
      told_ = now;
    }
    if (absl::GetFlag(FLAGS_out).empty() || Since(saved_, now) < kSaveSeconds) return;
    (void)Save(absl::GetFlag(FLAGS_out), TextOf(so_far));  // the last one tells of errors
    saved_ = now;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double Since(Clock::time_point from, Clock::time_point to) { return std::chrono::duration<double>(to - from).count(); }
  Clock::time_point began_ = Clock::now(), told_ = began_, saved_ = began_;
};

int Calibrate() {
  const MeasureOptions options = {absl::GetFlag(FLAGS_device), absl::GetFlag(FLAGS_seconds), absl::GetFlag(FLAGS_quick)};
  v1::Calibration calibration;
  if (absl::Status status = CheckWritable(absl::GetFlag(FLAGS_out)); !status.ok()) return Report(status);
  Reporter reporter;
  const absl::Status status = MeasureDevice(
      options, [&](const v1::Calibration& so_far, const std::string& what) { reporter(so_far, what); }, &calibration);
  if (!status.ok() && calibration.operators().empty()) return Report(status);
  const absl::Status kept = Keep(calibration);
  std::fprintf(stderr, "lego-measure: %d points measured in %.0f s, %d left out, %lld not reached\n",
               calibration.operators_size(), calibration.provenance().seconds(), calibration.left_out_size(),
               static_cast<long long>(calibration.points_not_reached()));
  if (!status.ok()) return Report(status);
  return kept.ok() ? 0 : Report(kept);
}

int MeasureCpu() {
  if (!absl::GetFlag(FLAGS_out).empty() || absl::GetFlag(FLAGS_quick)) {
    return Report(FieldError("--device", "", "is needed with --out and --quick: cuda"));
  }
  const auto device = MeasureHost();
  if (!device.ok()) return Report(device.status());
  std::fputs(TextOf(*device).c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace legoai::sim

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("measures this machine's CPU, or with --device=cuda its first GPU (docs/calibration.md)");
  absl::ParseCommandLine(argc, argv);
  legoai::comm::UseKnownCpuKernels();
  legoai::comm::KeepFreedMemory();
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // who has no parent left measures for no one
  return absl::GetFlag(FLAGS_device).empty() ? legoai::sim::MeasureCpu() : legoai::sim::Calibrate();
}
