#include "worker/comm/rendezvous.h"

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "absl/strings/str_cat.h"

namespace legoai::comm {

absl::Status ToStatus(const std::string& what, const std::exception& error) {
  std::string text = error.what();
  text = text.substr(0, text.find("\nException raised from"));
  const bool timed_out = text.find("imed out") != std::string::npos || text.find("imeout") != std::string::npos;
  const std::string message = absl::StrCat(what, " failed: ", text);
  return timed_out ? absl::DeadlineExceededError(message) : absl::UnavailableError(message);
}

absl::StatusOr<c10::intrusive_ptr<c10d::Store>> OpenStore(const RendezvousOptions& options) {
  try {
    c10d::TCPStoreOptions store;
    store.port = options.port;
    store.isServer = options.rank == 0;
    store.numWorkers = options.world_size;
    store.waitWorkers = false;
    store.useLibUV = false;
    store.timeout = options.connect_timeout;
    if (options.rank == 0 && options.listen_fd >= 0) store.masterListenFd = options.listen_fd;
    return c10::intrusive_ptr<c10d::Store>(c10::make_intrusive<c10d::TCPStore>(options.host, store));
  } catch (const std::exception& e) {
    return ToStatus(absl::StrCat("rendezvous at ", options.host, ":", options.port), e);
  }
}

}  // namespace legoai::comm
