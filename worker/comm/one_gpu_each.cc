#include "worker/comm/one_gpu_each.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "worker/comm/rendezvous.h"

namespace legoai::comm {
namespace {

std::string KeyOf(int64_t rank) { return absl::StrCat("gpu_of_rank/", rank); }

std::string GpuOf(c10d::Store& store, int64_t rank) {
  const std::vector<uint8_t> bytes = store.get(KeyOf(rank));
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace

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
