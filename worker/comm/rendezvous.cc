#include "worker/comm/rendezvous.h"

#include <map>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "absl/strings/str_cat.h"

namespace legoai::comm {
namespace {

std::string KeyOf(int64_t rank) { return absl::StrCat("gpu_of_rank/", rank); }

std::string GpuOf(c10d::Store& store, int64_t rank) {
  const std::vector<uint8_t> bytes = store.get(KeyOf(rank));
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace

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

absl::Status CheckOneGpuEach(c10d::Store& store, const std::vector<int64_t>& ranks, int64_t rank, const RankGpu& own) {
  int64_t asked = rank;
  try {
    store.set(KeyOf(rank), std::vector<uint8_t>(own.id.begin(), own.id.end()));
    std::map<std::string, int64_t> rank_of;
    for (int64_t other : ranks) {
      asked = other;
      const auto [first, fresh] = rank_of.try_emplace(GpuOf(store, other), other);
      if (fresh) continue;
      const bool mine = first->first == own.id;
      return absl::FailedPreconditionError(
          absl::StrCat("ranks ", first->second, " and ", other, " have the same GPU (", mine ? own.name + ", " : "", first->first,
                       "), and NCCL connects GPUs: start no more ranks than there are GPUs, or use device cpu"));
    }
  } catch (const std::exception& e) {
    return ToStatus(absl::StrCat("waiting for rank ", asked, " to say which GPU it has"), e);
  }
  return absl::OkStatus();
}

}  // namespace legoai::comm
