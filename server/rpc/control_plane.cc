#include "server/rpc/control_plane.h"

#include <utility>

#include "core/process/build_version.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/jobs/names.h"

namespace legoai::server {

ControlPlane::ControlPlane(store::Store* store, Fleet* fleet, Notifier* notifier, std::function<int64_t()> now_us)
    : store_(store),
      fleet_(fleet),
      notifier_(notifier),
      now_us_(std::move(now_us)),
      start_time_us_(now_us_()),
      ids_(now_us_, store::SystemRandom),
      predicted_traces_([fleet](const v1::SimRequest& asked, const std::function<bool()>& cancelled) {
        return fleet->Simulate(asked, cancelled);
      }) {}

absl::StatusOr<v1::Job> FindJob(store::ReadTransaction& transaction, const std::string& field, const std::string& name) {
  if (const auto parsed = ParseJobName(field, name); !parsed.ok()) return parsed.status();
  ASSIGN_OR_RETURN(auto job, transaction.GetJob(name));
  if (!job) return FieldError(field, name, "there is no such job; `lego list` shows those that are", absl::StatusCode::kNotFound);
  return *std::move(job);
}

absl::Status ControlPlane::ReadJob(const std::string& field, const std::string& name,
                                   const std::function<absl::Status(store::ReadTransaction&, v1::Job&)>& read) {
  return store_->Read([&](store::ReadTransaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(auto job, FindJob(transaction, field, name));
    return read(transaction, job);
  });
}

absl::StatusOr<v1::ServerInfo> ControlPlane::GetServerInfo(const v1::GetServerInfoRequest&) {
  v1::ServerInfo info;
  info.set_build_version(std::string(launch::BuildVersion()));
  info.set_start_time_us(start_time_us_);
  info.set_store(store_->Backend());
  info.set_schema_version(store_->SchemaVersion());
  const Leadership leading = fleet_->Leading();
  info.set_leads(leading.leads);
  info.set_address(leading.address);
  if (leading.leader) *info.mutable_leader() = *leading.leader;
  return info;
}

}  // namespace legoai::server
