#include "simulator/hardware/host_device.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "simulator/hardware/catalog.h"

namespace legoai::sim {

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
  auto device = LoadDevice(path);
  if (!device.ok()) return Annotate(device.status(), "this machine's CPU (made by `lego hardware --measure`)");
  return std::optional<v1::Device>(*std::move(device));
}

}  // namespace legoai::sim
