// Checks a store's files, and salvages a damaged store: copies every row of every intact page into a new store beside it. Nobody
// else may use the files meanwhile (file_lock.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace legoai::store {

struct RepairReport {
  std::string saved_to;                    // path of the new store
  std::map<std::string, int64_t> saved;    // rows by table
  std::map<std::string, int64_t> orphans;  // rows by table that belong to lost jobs
  std::vector<std::string> lost_jobs;      // by name: in an index, but with an unreadable row
  int64_t unreadable = 0;                  // rows of any table
  bool lost_header = false;                // of the file, and with it the list of free pages
  std::string log_damage;                  // of the write-ahead log, whose rest is lost; empty: none
};

// Reads the files of the store at `path` without changing them, writes PATH.repaired, and checks its integrity. Nobody else may
// use the store meanwhile.
//
// Errors (field `store`): FailedPrecondition if a server uses it or PATH.repaired exists; NotFound if there is no store; those of
// Database for the new one, which is then removed.
absl::StatusOr<RepairReport> RepairStore(const std::string& path);

// For people: what was saved and lost, and how to replace the old store by the new one.
std::string ToText(const RepairReport& report, const std::string& path);

bool HasContent(const std::string& path);  // false if there is nothing

// Checks the log, all pages and indexes with SQLite, and that all messages parse, those of jobs, workers, attempts and
// checkpoints first; changes no file. A missing file is intact. Returns whether the check finished within `budget`. Bytes within
// texts and numbers have no checksum and are not checked.
//
// Errors (field `store`): DataLoss with what is damaged and the remedy; those of Database otherwise.
absl::StatusOr<bool> CheckIntegrity(const std::string& path, absl::Duration budget);

}  // namespace legoai::store
