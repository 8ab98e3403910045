#include "server/cli/machine.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "simulator/hardware/catalog.h"

namespace legoai::cli {
namespace {

namespace fs = std::filesystem;

// `folder`: where the build leaves it, from the root of its output tree.
absl::StatusOr<std::string> FindProgram(const std::string& name, const std::string& folder, const char* variable) {
  const std::string remedy = absl::StrCat("build it with `bazel build //", folder, ":", name, "`, or name it in ", variable);
  if (const char* path = std::getenv(variable); path != nullptr && *path != '\0') {
    if (access(path, X_OK) == 0) return std::string(path);
    return absl::NotFoundError(absl::StrCat(variable, " = ", path, " is not there or cannot be run: ", remedy));
  }
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const std::vector<fs::path> places = {self.parent_path() / name, self.parent_path() / "../.." / folder / name};
  for (const fs::path& place : places) {
    if (access(place.c_str(), X_OK) == 0) return fs::weakly_canonical(place, error).string();
  }
  return absl::NotFoundError(absl::StrCat("the program ", name, " is not beside lego: ", remedy));
}

}  // namespace

absl::StatusOr<std::string> FindSim() { return FindProgram("lego-sim", "simulator/capture", "LEGOAI_SIM"); }
absl::StatusOr<std::string> FindTrainer() { return FindProgram("legoai-trainer", "worker/train", "LEGOAI_TRAINER"); }
absl::StatusOr<std::string> FindMeasure() { return FindProgram("lego-measure", "simulator/capture", "LEGOAI_MEASURE"); }

std::string HostDevicePath() {
  if (const char* path = std::getenv("LEGOAI_HOST_DEVICE"); path != nullptr && *path != '\0') return path;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string folder = cache != nullptr && *cache != '\0' ? cache : absl::StrCat(home == nullptr ? "." : home, "/.cache");
  return folder + "/legoai/this-machine.txtpb";
}

absl::StatusOr<std::optional<v1::Device>> LoadHostDevice() {
  const std::string path = HostDevicePath();
  const char* variable = std::getenv("LEGOAI_HOST_DEVICE");
  const bool named = variable != nullptr && *variable != '\0';
  if (!named && access(path.c_str(), F_OK) != 0) return std::optional<v1::Device>();
  auto device = sim::LoadDevice(path);
  if (!device.ok()) return Annotate(device.status(), "this machine's CPU (made by `lego hardware --measure`)");
  return std::optional<v1::Device>(*std::move(device));
}

absl::StatusOr<v1::Cluster> ResolveCluster(const std::string& text) {
  auto host = LoadHostDevice();
  if (!host.ok()) return host.status();
  return sim::ParseCluster(text, host->has_value() ? &**host : nullptr);
}

}  // namespace legoai::cli
