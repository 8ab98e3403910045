// Flight records: a head for each attempt that has one, and the dumps of its ranks beside it.
#include "server/store/sqlite_transaction.h"

namespace legoai::store {

absl::Status SqliteTransaction::PutFlightRecord(const std::string& job, const v1::FlightRecord& head,
                                                const v1::FlightDump* dump) {
  const absl::StatusOr<int64_t> number = JobNumber(job);
  if (!number.ok()) return number.status();
  v1::FlightRecord alone = head;
  alone.clear_dumps();
  const absl::Status status = database_.Run("INSERT OR REPLACE INTO flight_records (job, attempt, value) VALUES (?1, ?2, ?3)",
                                            *number, alone.attempt(), alone);
  if (!status.ok() || dump == nullptr) return status;
  return database_.Run("INSERT OR REPLACE INTO flight_dumps (job, attempt, rank, value) VALUES (?1, ?2, ?3, ?4)", *number,
                       alone.attempt(), dump->rank(), *dump);
}

absl::StatusOr<std::optional<v1::FlightRecord>> SqliteTransaction::GetFlightRecord(const std::string& job) {
  absl::StatusOr<std::optional<v1::FlightRecord>> record = FirstMessage<v1::FlightRecord>(
      database_.Query("SELECT value FROM flight_records WHERE job = (SELECT id FROM jobs WHERE name = ?1)"
                      " ORDER BY attempt DESC LIMIT 1",
                      job));
  if (!record.ok() || !*record) return record;
  Statement rows = database_.Query(
      "SELECT value FROM flight_dumps WHERE job = (SELECT id FROM jobs WHERE name = ?1) AND attempt = ?2 ORDER BY rank", job,
      (*record)->attempt());
  while (rows.Next()) *(*record)->add_dumps() = rows.Message<v1::FlightDump>(0);
  if (!rows.status().ok()) return rows.status();
  return record;
}

}  // namespace legoai::store
