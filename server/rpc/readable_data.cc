#include "server/rpc/readable_data.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/process/data_roots.h"
#include "proto/errors.h"

namespace legoai::server {
namespace {

bool MayGet(const v1::JobSpec& spec, const v1::Worker& worker) {
  const v1::Resources& wanted = spec.resources();
  return worker.connected() && worker.pool() == wanted.pool() &&
         (!wanted.has_device_type() || wanted.device_type() == worker.device().type());
}

}  // namespace

absl::Status CheckReadable(const v1::JobSpec& spec, const std::vector<v1::Worker>& workers, const std::string& host) {
  absl::Status refusal;
  for (const v1::Worker& worker : workers) {
    if (!MayGet(spec, worker)) continue;
    const auto label = worker.labels().find(launch::kDataRootsLabel);
    if (host.empty() || worker.host() != host || label == worker.labels().end()) return absl::OkStatus();
    const absl::Status status = launch::CheckDataRoots(spec.recipe(), absl::StrSplit(label->second, ',', absl::SkipEmpty()));
    if (status.ok()) return status;
    refusal = status;
  }
  const auto fault = GetFieldViolation(refusal);
  if (!fault) return absl::OkStatus();
  return FieldError(absl::StrCat("spec.recipe.", fault->field()), fault->value(), fault->remedy());
}

std::string ThisHost() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

}  // namespace legoai::server
