// Whether a store's files are whole, and what can be saved of a damaged one: every row of every whole page, in a new store beside
// it. Nobody else may use the files meanwhile (file_lock.h).
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
  std::map<std::string, int64_t> orphans;  // rows by table that belong to jobs that are lost
  std::vector<std::string> lost_jobs;      // by name: an index knows them, their row cannot be read
  int64_t unreadable = 0;                  // rows, of whatever table
  bool lost_header = false;                // of the file, and so what it says of pages that are not in use
  std::string log_damage;                  // of the write-ahead log, the rest of which is lost; empty: none
};

// Reads the files of the store at `path`, which stay as they are, and writes PATH.repaired, whose integrity is checked at the
// end. The store must be nobody else's meanwhile.
//
// Errors (field `store`): FailedPrecondition where a server works with it, or PATH.repaired is there; NotFound where there is no
// store; those of Database for the new one, which is then removed.
absl::StatusOr<RepairReport> RepairStore(const std::string& path);

// For a person: what was saved and lost, and how the new store is put in the old one's place.
std::string ToText(const RepairReport& report, const std::string& path);

bool HasContent(const std::string& path);  // false if there is nothing

// Looks at the log, at all pages and indexes as SQLite knows them, and at whether all messages can be read, those of jobs,
// workers, attempts and checkpoints first; changes none of the files. A file that is not there is whole. Returns whether it came
// to the end within `budget`. What is not checked: bytes within texts and numbers, which have no checksum.
//
// Errors (field `store`): DataLoss with what is damaged and the remedy; those of Database otherwise.
absl::StatusOr<bool> CheckIntegrity(const std::string& path, absl::Duration budget);

}  // namespace legoai::store
