#include "worker/launch/gpus.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/read_file.h"

namespace legoai::launch {
namespace {

// A socket's name in the kernel's own name space, which begins with a zero byte: it is one process's at a time, needs no folder
// that all users could write, and goes when its process does. LEGOAI_GPU_CLAIMS keeps tests with equal GPUs apart.
struct Address {
  sockaddr_un name = {};
  socklen_t size = 0;
};

Address AddressOf(const std::string& gpu) {
  const char* apart = std::getenv("LEGOAI_GPU_CLAIMS");
  const std::string text = absl::StrCat("legoai/", apart == nullptr ? "" : apart, "/", gpu);
  Address address;
  address.name.sun_family = AF_UNIX;
  const size_t length = std::min(text.size(), sizeof(address.name.sun_path) - 1);
  std::memcpy(address.name.sun_path + 1, text.data(), length);
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

const sockaddr* Any(const Address& address) { return reinterpret_cast<const sockaddr*>(&address.name); }

int Socket() { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

// "process 4711 (legoai-agent)".
std::string HolderOf(const Address& address) {
  const int fd = Socket();
  ucred holder = {};
  socklen_t size = sizeof(holder);
  const bool known = fd >= 0 && connect(fd, Any(address), address.size) == 0 &&
                     getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &holder, &size) == 0 && holder.pid > 0;
  if (fd >= 0) close(fd);
  if (!known) return "another process";
  const auto name = ReadFile(absl::StrCat("/proc/", holder.pid, "/comm"), /*most_bytes=*/64);
  const std::string program = name.ok() ? absl::StrCat(" (", absl::StripAsciiWhitespace(*name), ")") : "";
  return absl::StrCat("process ", holder.pid, program);
}

absl::Status NotTaken(const std::string& gpu, const Address& address, int error) {
  if (error != EADDRINUSE) return absl::InternalError(absl::StrCat("GPU ", gpu, " cannot be taken: ", std::strerror(error)));
  return FieldError(
      "gpu", gpu,
      absl::StrCat("is taken by ", HolderOf(address), ", and a GPU is one training's at a time: wait for it, or name ",
                   "other GPUs in CUDA_VISIBLE_DEVICES (`lego hardware` lists them)"),
      absl::StatusCode::kFailedPrecondition);
}

}  // namespace

void ComputeOnGpus(std::vector<std::string> gpus, int64_t cores, TrainRequest* request) {
  gpus.resize(static_cast<size_t>(request->nproc));
  request->device = "cuda";
  request->gpus = std::move(gpus);
  request->pin = false;
  request->threads = std::max<int64_t>(1, cores);
}

absl::StatusOr<GpuClaim> GpuClaim::Take(const std::vector<std::string>& gpus) {
  GpuClaim claim;
  for (const std::string& gpu : gpus) {
    const Address address = AddressOf(gpu);
    const int fd = Socket();
    if (fd < 0) return NotTaken(gpu, address, errno);
    claim.sockets_.push_back(fd);
    // Listens so that who comes later can ask whose it is.
    if (bind(fd, Any(address), address.size) != 0 || listen(fd, SOMAXCONN) != 0) return NotTaken(gpu, address, errno);
  }
  return claim;
}

GpuClaim::~GpuClaim() {
  for (const int fd : sockets_) close(fd);
}

}  // namespace legoai::launch
