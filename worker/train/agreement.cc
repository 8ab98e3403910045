#include "worker/train/agreement.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/trace/collective_digest.h"
#include "proto/status.h"
#include "worker/comm/ops.h"
#include "worker/comm/runtime.h"
#include "worker/comm/status_error.h"

namespace legoai::train {
namespace {

constexpr size_t kTextBytes = 1024;

at::TensorOptions Numbers() { return at::TensorOptions().dtype(at::kLong); }

// item() and copies alone would wait for a lost peer for ever.
absl::Status Settle() { return comm::CurrentRuntime().Drain(); }

// One more than the rank; 0: no rank has a fault.
absl::StatusOr<int64_t> HighestFaulty(bool faulty, int64_t world, c10::Device device) {
  const at::Tensor highest = at::zeros({}, Numbers());
  if (faulty) *highest.mutable_data_ptr<int64_t>() = comm::CurrentRuntime().rank() + 1;
  const at::Tensor there = highest.to(device);
  comm::AllReduce(there, world, comm::ReduceOp::kMax);
  RETURN_IF_ERROR(Settle());
  return there.item<int64_t>();
}

// The rank's text, on every rank.
absl::StatusOr<std::string> Tell(const std::string& mine, int64_t rank, int64_t world, c10::Device device) {
  const at::Tensor text = at::zeros({kTextBytes}, at::TensorOptions().dtype(at::kByte));
  const size_t length = std::min(mine.size(), kTextBytes - 1);
  if (comm::CurrentRuntime().rank() == rank) std::memcpy(text.mutable_data_ptr(), mine.data(), length);
  const at::Tensor there = text.to(device);
  comm::Broadcast(there, world, rank);
  RETURN_IF_ERROR(Settle());
  return absl::StrCat("rank ", rank, ": ", static_cast<const char*>(there.cpu().const_data_ptr()));
}

// Row r: those of rank r.
absl::StatusOr<at::Tensor> DigestsOfAll(const std::vector<uint64_t>& mine, int64_t world, c10::Device device) {
  const auto count = static_cast<int64_t>(mine.size());
  const at::Tensor row = at::empty({count}, Numbers());
  std::memcpy(row.mutable_data_ptr(), mine.data(), mine.size() * sizeof mine[0]);
  const at::Tensor all = at::empty({comm::CurrentRuntime().GroupSize(world), count}, Numbers().device(device));
  comm::AllGatherInto(all, row.to(device), world);
  RETURN_IF_ERROR(Settle());
  return all.cpu();
}

// Empty, or who of the group calls others.
std::string FaultOf(const mesh::Group& group, size_t number, const at::Tensor& digests) {
  const auto* const rows = digests.const_data_ptr<int64_t>();
  const auto of = [&](int64_t rank) { return rows[rank * digests.size(1) + static_cast<int64_t>(number)]; };
  const int64_t first = group.ranks[0];
  std::vector<int64_t> others;
  for (const int64_t rank : group.ranks.List()) {
    if (of(rank) != of(first)) others.push_back(rank);
  }
  if (others.empty()) return "";
  return absl::StrCat("in group ", mesh::NameOf(group.dim), " other collectives than those of rank ", first, " are called by ",
                      others.size() == 1 ? "rank " : "ranks ", absl::StrJoin(others, ", "), " (of ranks ",
                      absl::StrJoin(group.ranks.List(), ", "), ")");
}

// `find` communicates, and throws.
absl::StatusOr<std::string> Caught(absl::FunctionRef<absl::StatusOr<std::string>()> find) {
  absl::StatusOr<std::string> found = "";
  RETURN_IF_ERROR(comm::CatchStatus([&] {
    found = find();
    return found.status();
  }));
  return found;
}

int64_t World() { return comm::CurrentRuntime().GroupId(mesh::Dim::kWorld); }

}  // namespace

absl::StatusOr<std::string> AgreeOnFault(const std::string& mine, c10::Device device) {
  return Caught([&]() -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(const int64_t highest, HighestFaulty(!mine.empty(), World(), device));
    if (highest == 0) return "";
    return Tell(mine, highest - 1, World(), device);
  });
}

absl::StatusOr<std::string> CompareTexts(const std::string& mine, c10::Device device) {
  ASSIGN_OR_RETURN(const std::string first, Caught([&] { return Tell(mine, 0, World(), device); }));
  const bool is_same = first == absl::StrCat("rank 0: ", mine.substr(0, kTextBytes - 1));
  return AgreeOnFault(is_same ? "" : absl::StrCat(mine, "; ", first), device);
}

absl::StatusOr<std::string> CompareCollectives(const graph::Trace& mine, c10::Device device) {
  ASSIGN_OR_RETURN(const std::string found, Caught([&]() -> absl::StatusOr<std::string> {
                     ASSIGN_OR_RETURN(const at::Tensor digests, DigestsOfAll(graph::CollectiveDigests(mine), World(), device));
                     std::string fault;
                     for (size_t i = 0; i < mine.groups.size() && fault.empty(); ++i) fault = FaultOf(mine.groups[i], i, digests);
                     return fault;
                   }));
  return AgreeOnFault(found, device);
}

}  // namespace legoai::train
