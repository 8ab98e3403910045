#include "server/store/postgres_follower.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/status.h"
#include "server/store/guarded_store.h"
#include "server/store/postgres_schema.h"
#include "server/store/postgres_statements.h"

namespace legoai::store {
namespace {

using Values = PostgresValues;

class FollowerStore final : public GuardedStore {
 public:
  FollowerStore(const PostgresTarget& target, const PostgresOptions& options, const std::shared_ptr<DamageLatch>& damage)
      : GuardedStore(damage),
        target_(target),
        readers_(target, options.times, options.readers, options.patience, options.on_round_trip, options.ends, damage) {}

  std::string Backend() const override { return "postgresql"; }
  int64_t SchemaVersion() const override { return PostgresSchemaVersion(); }

 private:
  absl::Status WriteOnce(const WriteWork&) override {
    return PostgresFieldError(target_, "this server does not lead: only the leader writes", absl::StatusCode::kUnavailable);
  }
  absl::Status ReadOnce(const ReadWork& work) override { return readers_.Read(work); }

  const PostgresTarget target_;
  PostgresReaders readers_;
};

}  // namespace

PostgresFollower::PostgresFollower(const PostgresTarget& target, const PostgresOptions& options)
    : target_(target),
      options_(options),
      damage_(std::make_shared<DamageLatch>(options.on_damage)),
      store_(std::make_unique<FollowerStore>(target, options, damage_)) {}

absl::StatusOr<std::unique_ptr<PostgresFollower>> PostgresFollower::Make(const std::string& url, const PostgresOptions& options) {
  ASSIGN_OR_RETURN(const PostgresTarget target, ParsePostgresTarget(url));
  return std::unique_ptr<PostgresFollower>(new PostgresFollower(target, options));
}

absl::Status PostgresFollower::Connect() {
  const auto on_damage = [damage = damage_](const absl::Status& met) { damage->Set(met); };
  ASSIGN_OR_RETURN(connection_, PostgresConnection::Open(target_, options_.times, options_.on_round_trip, on_damage,
                                                         absl::InfinitePast(), options_.ends));
  return absl::OkStatus();
}

absl::Status PostgresFollower::CheckVersion() {
  ASSIGN_OR_RETURN(const int64_t version, PostgresVersionThere(*connection_));
  if (version > PostgresSchemaVersion()) {
    return PostgresFieldError(target_,
                              absl::StrCat("it has schema version ", version, " and this server knows versions up to ",
                                           PostgresSchemaVersion(), ": start a server of the release that wrote it"),
                              absl::StatusCode::kFailedPrecondition);
  }
  if (version == 0) return absl::OkStatus();
  const auto there = connection_->RoundTrip({{&postgres::kHasAddress, Values()}});
  has_tables_ = there.status.ok() && there.rows[0].Int(0, 0) == 1;
  return there.status;
}

absl::StatusOr<PostgresFollower::Sight> PostgresFollower::Look() {
  if (connection_ == nullptr || connection_->lost()) RETURN_IF_ERROR(Connect());
  if (!has_tables_) RETURN_IF_ERROR(CheckVersion());
  std::vector<PostgresConnection::Query> questions;
  questions.push_back({&postgres::kLockHolder, Values()});
  if (has_tables_) questions.push_back({&postgres::kLeader, Values()});
  const auto answers = connection_->RoundTrip(questions);
  RETURN_IF_ERROR(answers.status);
  Sight sight;
  if (answers.rows[0].size() > 0) sight.holder_pid = answers.rows[0].Int(0, 0);
  if (!has_tables_) return sight;
  const PostgresRows& row = answers.rows[1];
  if (row.size() != 1)
    return PostgresFieldError(target_, "its table leader has no row: restore a backup", absl::StatusCode::kDataLoss);
  sight.leader = Leader{.term = row.Int(0, 0),
                        .sequence = row.Int(0, 1),
                        .holder = std::string(row.Text(0, 2)),
                        .address = std::string(row.Text(0, 4)),
                        .since_us = row.Int(0, 3)};
  return sight;
}

absl::Status PostgresFollower::EndLeader(int64_t holder_pid) {
  return connection_->RoundTrip({{&postgres::kEndLockHolder, Values(holder_pid)}}).status;
}

}  // namespace legoai::store
