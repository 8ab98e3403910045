#include "server/rpc/readable_data.h"

#include <unistd.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/process/data_roots.h"
#include "proto/errors.h"

namespace legoai::server {
namespace {

bool MayGet(const v1::JobSpec& spec, const v1::Worker& worker) {
  const v1::Resources& wanted = spec.resources();
  return worker.pool() == wanted.pool() && (!wanted.has_device_type() || wanted.device_type() == worker.device().type());
}

}  // namespace

absl::Status CheckReadable(const v1::JobSpec& spec, const Fleet& fleet, const std::string& host) {
  std::set<std::string> announced;  // many workers of a host have the same folders
  bool is_unknown = host.empty();
  fleet.VisitWorkers([&](const v1::Worker& worker, bool connected) {
    if (!connected || !MayGet(spec, worker)) return true;
    const auto label = worker.labels().find(launch::kDataRootsLabel);
    is_unknown |= worker.host() != host || label == worker.labels().end();
    if (!is_unknown) announced.insert(label->second);
    return !is_unknown;
  });
  if (is_unknown) return absl::OkStatus();
  absl::Status refusal;
  for (const std::string& roots : announced) {
    refusal = launch::CheckDataRoots(spec.recipe(), absl::StrSplit(roots, ',', absl::SkipEmpty()));
    if (refusal.ok()) return refusal;
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
