// Lists of jobs. Each reads index entries in the order that is wanted and stops at its limit; the planner is not asked (INDEXED
// BY).
#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "proto/status.h"
#include "server/store/sqlite_transaction.h"

namespace legoai::store {
namespace {

// What comes after every ULID.
constexpr char kAfterAll[] = "~";

struct Filter {
  explicit Filter(const JobQuery& query)
      : until_us(query.created_until_us == 0 ? std::numeric_limits<int64_t>::max() : query.created_until_us),
        name(absl::AsciiStrToLower(query.display_name_contains)),
        text(absl::AsciiStrToLower(query.text_contains)),
        id_text(absl::AsciiStrToUpper(query.text_contains)) {}
  int64_t until_us;
  std::string name, text, id_text;
};

using Page = std::vector<std::pair<std::string, int64_t>>;  // ULID and number

absl::Status AddPage(Statement rows, Page& page) {
  while (rows.Next()) page.emplace_back(rows.Text(0), rows.Int(1));
  return rows.status();
}

absl::Status AddPageInState(Database& database, const JobQuery& query, const std::string& before, v1::JobState state,
                            Page& page) {
  const Filter filter(query);
  return AddPage(
      database.Query("SELECT ulid, id FROM jobs INDEXED BY jobs_by_project_and_state"
                     " WHERE project = ?1 AND state = ?2 AND ulid < ?3 AND create_time_us >= ?4 AND create_time_us < ?5"
                     " AND instr(folded_name, ?6) > 0 AND (instr(folded_name, ?7) > 0 OR instr(ulid, ?8) > 0)"
                     " ORDER BY ulid DESC LIMIT MAX(?9, 0)",
                     query.project, state, before, query.created_from_us, filter.until_us, filter.name, filter.text,
                     filter.id_text, query.limit),
      page);
}

// The page of each state is in order already; the page of all is the first of these together.
absl::StatusOr<Page> FindPage(Database& database, const JobQuery& query) {
  Page page;
  const Filter filter(query);
  const std::string before = query.before_id.empty() ? kAfterAll : query.before_id;
  if (query.states.empty()) {
    const absl::Status status =
        AddPage(database.Query("SELECT ulid, id FROM jobs INDEXED BY jobs_by_project"
                               " WHERE project = ?1 AND ulid < ?2 AND create_time_us >= ?3 AND create_time_us < ?4"
                               " AND instr(folded_name, ?5) > 0 AND (instr(folded_name, ?6) > 0 OR instr(ulid, ?7) > 0)"
                               " ORDER BY ulid DESC LIMIT MAX(?8, 0)",
                               query.project, before, query.created_from_us, filter.until_us, filter.name, filter.text,
                               filter.id_text, query.limit),
                page);
    if (!status.ok()) return status;
    return page;
  }
  for (v1::JobState state : std::set<v1::JobState>(query.states.begin(), query.states.end())) {
    RETURN_IF_ERROR(AddPageInState(database, query, before, state, page));
  }
  std::sort(page.begin(), page.end(), std::greater<>());
  page.resize(std::min(page.size(), static_cast<size_t>(std::max<int64_t>(query.limit, 0))));
  return page;
}

absl::StatusOr<int64_t> Number(Statement row) {
  const int64_t number = row.Next() ? row.Int(0) : 0;
  if (!row.status().ok()) return row.status();
  return number;
}

}  // namespace

absl::StatusOr<std::vector<v1::Job>> SqliteTransaction::ListJobs(const JobQuery& query) {
  const absl::StatusOr<Page> page = FindPage(database_, query);
  if (!page.ok()) return page.status();
  std::vector<v1::Job> jobs;
  for (const auto& [ulid, number] : *page) {
    Statement row = database_.Query("SELECT value FROM jobs WHERE id = ?1", number);
    if (row.Next()) jobs.push_back(row.Message<v1::Job>(0));
    if (!row.status().ok()) return row.status();
  }
  return jobs;
}

// Where nothing but project and state is asked for, the count is kept; otherwise index entries are counted.
absl::StatusOr<int64_t> SqliteTransaction::CountJobs(const JobQuery& query) {
  const Filter filter(query);
  const bool of_all = filter.name.empty() && filter.text.empty() && query.created_from_us <= 0 && query.created_until_us == 0;
  if (query.states.empty() && of_all) {
    return Number(database_.Query("SELECT SUM(jobs) FROM job_counts WHERE project = ?1", query.project));
  }
  if (query.states.empty()) {
    return Number(
        database_.Query("SELECT COUNT(*) FROM jobs INDEXED BY jobs_by_project"
                        " WHERE project = ?1 AND create_time_us >= ?2 AND create_time_us < ?3 AND instr(folded_name, ?4) > 0"
                        " AND (instr(folded_name, ?5) > 0 OR instr(ulid, ?6) > 0)",
                        query.project, query.created_from_us, filter.until_us, filter.name, filter.text, filter.id_text));
  }
  int64_t count = 0;
  for (v1::JobState state : std::set<v1::JobState>(query.states.begin(), query.states.end())) {
    const absl::StatusOr<int64_t> in_state =
        of_all ? Number(database_.Query("SELECT jobs FROM job_counts WHERE project = ?1 AND state = ?2", query.project, state))
               : Number(database_.Query(
                     "SELECT COUNT(*) FROM jobs INDEXED BY jobs_by_project_and_state WHERE project = ?1 AND state = ?2"
                     " AND create_time_us >= ?3 AND create_time_us < ?4 AND instr(folded_name, ?5) > 0"
                     " AND (instr(folded_name, ?6) > 0 OR instr(ulid, ?7) > 0)",
                     query.project, state, query.created_from_us, filter.until_us, filter.name, filter.text, filter.id_text));
    if (!in_state.ok()) return in_state;
    count += *in_state;
  }
  return count;
}

absl::StatusOr<std::vector<v1::Job>> SqliteTransaction::JobsInStates(const std::vector<v1::JobState>& states) {
  std::vector<std::pair<std::string, v1::Job>> found;
  for (v1::JobState state : std::set<v1::JobState>(states.begin(), states.end())) {
    Statement rows =
        database_.Query("SELECT value, ulid FROM jobs INDEXED BY jobs_by_state WHERE state = ?1 ORDER BY ulid", state);
    while (rows.Next()) found.emplace_back(rows.Text(1), rows.Message<v1::Job>(0));
    if (!rows.status().ok()) return rows.status();
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<v1::Job> jobs;
  for (auto& [ulid, job] : found) jobs.push_back(std::move(job));
  return jobs;
}

}  // namespace legoai::store
