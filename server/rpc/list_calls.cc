// The calls of ControlPlane that list jobs, and what belongs to a job.
#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/flight/flight_analysis.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/jobs/names.h"
#include "server/jobs/transition.h"
#include "server/rpc/control_plane.h"
#include "server/rpc/downsample.h"
#include "server/rpc/list_query.h"

namespace legoai::server {
namespace {

constexpr int64_t kJobsPage = 50;
constexpr int64_t kRowsPage = 100;
constexpr int64_t kLogsPage = 200;
constexpr int64_t kMostPoints = 1000;
constexpr int64_t kMostRankRows = 4096;
constexpr char kPlanEnd[] = "/plan";
constexpr char kFlightRecordEnd[] = "/flightRecord";

// What a list leaves out: it is large and seldom looked at there.
void Shorten(v1::Job* job) {
  job->mutable_spec()->mutable_model()->clear_config_json();
  if (job->has_chosen()) job->mutable_chosen()->clear_recipe_toml();
}

template <typename T, typename List>
absl::Status Fill(absl::StatusOr<std::vector<T>> rows, List* list) {
  if (!rows.ok()) return rows.status();
  for (T& row : *rows) *list->Add() = std::move(row);
  return absl::OkStatus();
}

// What orders the rows of a job that come in pages: a version or number, and with checkpoints the epoch that saved it.
using RowKey = std::pair<int64_t, int64_t>;
RowKey KeyOf(const v1::Transition& transition) { return {transition.version(), 0}; }
RowKey KeyOf(const v1::Attempt& attempt) { return {attempt.attempt(), 0}; }
RowKey KeyOf(const v1::Checkpoint& checkpoint) { return {checkpoint.step(), checkpoint.epoch()}; }

// Rows are added and removed while a client turns pages, so a page begins after a key, not at a count.
struct RowPage {
  const char* list;    // what is listed, in the token
  std::string parent;  // a job's name
  int64_t size = 0;
  RowKey after = {-1, -1};
};

template <typename Request>
absl::StatusOr<RowPage> AskedPage(const char* list, const Request& request) {
  ASSIGN_OR_RETURN(const auto size, PageSize(request.page_size(), kRowsPage));
  const auto cursor = ReadPageToken({list, request.parent()}, request.page_token());
  if (!cursor.ok()) return cursor.status();
  RowPage page{.list = list, .parent = request.parent(), .size = size};
  const std::pair<std::string, std::string> key = absl::StrSplit(*cursor, absl::MaxSplits(',', 1));
  const bool read = absl::SimpleAtoi(key.first, &page.after.first) && absl::SimpleAtoi(key.second, &page.after.second);
  if (!cursor->empty() && !read) return FieldError("page_token", request.page_token(), "is damaged");
  return page;
}

// `rows` in the order of their keys.
template <typename T, typename List>
absl::Status FillPage(absl::StatusOr<std::vector<T>> rows, const RowPage& page, List* list, std::string* next_page_token) {
  if (!rows.ok()) return rows.status();
  for (T& row : *rows) {
    if (KeyOf(row) <= page.after) continue;
    if (list->size() == page.size) {
      const auto [number, epoch] = KeyOf(*list->rbegin());
      *next_page_token = MakePageToken({page.list, page.parent}, absl::StrCat(number, ",", epoch));
      break;
    }
    *list->Add() = std::move(row);
  }
  return absl::OkStatus();
}

// `value` if `status` is OK.
template <typename T>
absl::StatusOr<T> Answer(const absl::Status& status, T value) {
  if (!status.ok()) return status;
  return value;
}

// What a job may not have yet.
template <typename T>
absl::Status Take(absl::StatusOr<std::optional<T>> row, const v1::Job& job, const char* what, T* answer) {
  if (!row.ok()) return row.status();
  if (!*row) {
    return FieldError("name", job.name(), absl::StrCat("is ", StateText(job.state()), " and has ", what),
                      absl::StatusCode::kNotFound);
  }
  *answer = **std::move(row);
  return absl::OkStatus();
}

// Every rank's dump names the size of the world, those of ranks without one included.
void Analyze(v1::FlightRecord* record) {
  int64_t world_size = 0;
  for (const v1::FlightDump& dump : record->dumps()) world_size = std::max(world_size, dump.world_size());
  *record->mutable_analysis() = comm::AnalyzeFlight({record->dumps().begin(), record->dumps().end()}, world_size);
}

CurvePoint AsCurvePoint(const v1::StepMetrics& metrics) {
  return {.step = static_cast<double>(metrics.step()),
          .loss = metrics.has_loss() ? metrics.loss() : std::numeric_limits<double>::quiet_NaN(),
          .held_out = metrics.has_validation_loss()};
}

// The latest reports of which the rows of ranks are no more than may be given; the latest one always.
absl::Status FillRankReports(store::ReadTransaction& transaction, const v1::Job& job, int64_t most,
                             google::protobuf::RepeatedPtrField<v1::StepMetrics>* list) {
  ASSIGN_OR_RETURN(auto reports, transaction.ListRankReports(job.name(), std::min(most, store::kRankReports)));
  int64_t rows = 0;
  auto first = reports.end();
  while (first != reports.begin()) {
    rows += std::prev(first)->ranks_size();
    if (rows > kMostRankRows && first != reports.end()) break;
    --first;
  }
  for (; first != reports.end(); ++first) *list->Add() = std::move(*first);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::ListProjectsResponse> ControlPlane::ListProjects(const v1::ListProjectsRequest&) {
  v1::ListProjectsResponse response;
  const absl::Status status = store_->Read([&](store::ReadTransaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(const auto projects, transaction.ListProjects());
    for (const std::string& project : projects) response.add_projects()->set_name(project);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<v1::ListJobsResponse> ControlPlane::ListJobs(const v1::ListJobsRequest& request) {
  ASSIGN_OR_RETURN(const auto project, ParseProjectName("parent", request.parent()));
  ASSIGN_OR_RETURN(auto filter, ParseJobFilter(request.filter()));
  ASSIGN_OR_RETURN(const auto size, PageSize(request.page_size(), kJobsPage));
  const auto cursor = ReadPageToken({"jobs", request.parent(), request.filter()}, request.page_token());
  if (!cursor.ok()) return cursor.status();
  v1::ListJobsResponse response;
  if (filter.nothing) return response;
  store::JobQuery query = filter.query;
  query.project = request.parent();
  query.before_id = *cursor;
  query.limit = size + 1;  // one more tells whether there is a next page
  const absl::Status status = store_->Read([&](store::ReadTransaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(const auto total, transaction.CountJobs(query));
    response.set_total_size(total);
    return Fill(transaction.ListJobs(query), response.mutable_jobs());
  });
  if (!status.ok()) return status;
  for (v1::Job& job : *response.mutable_jobs()) {
    fleet_->DescribeWait(&job);
    Shorten(&job);
  }
  if (response.jobs_size() > size) {
    response.mutable_jobs()->RemoveLast();
    ASSIGN_OR_RETURN(const auto last, ParseJobName("name", response.jobs().rbegin()->name()));
    response.set_next_page_token(MakePageToken({"jobs", request.parent(), request.filter()}, last.id));
  }
  return response;
}

absl::StatusOr<v1::ListTransitionsResponse> ControlPlane::ListTransitions(const v1::ListTransitionsRequest& request) {
  ASSIGN_OR_RETURN(const auto page, AskedPage("transitions", request));
  v1::ListTransitionsResponse response;
  const absl::Status status = ReadJob("parent", request.parent(), [&](store::ReadTransaction& transaction, v1::Job& job) {
    const int64_t after = std::max<int64_t>(page.after.first, 0);
    return FillPage(transaction.ListTransitions(job.name(), after, page.size + 1), page, response.mutable_transitions(),
                    response.mutable_next_page_token());
  });
  return Answer(status, std::move(response));
}

absl::StatusOr<v1::ListAttemptsResponse> ControlPlane::ListAttempts(const v1::ListAttemptsRequest& request) {
  ASSIGN_OR_RETURN(const auto page, AskedPage("attempts", request));
  v1::ListAttemptsResponse response;
  const absl::Status status = ReadJob("parent", request.parent(), [&](store::ReadTransaction& transaction, v1::Job& job) {
    return FillPage(transaction.ListAttempts(job.name()), page, response.mutable_attempts(), response.mutable_next_page_token());
  });
  return Answer(status, std::move(response));
}

absl::StatusOr<v1::ListCheckpointsResponse> ControlPlane::ListCheckpoints(const v1::ListCheckpointsRequest& request) {
  ASSIGN_OR_RETURN(const auto page, AskedPage("checkpoints", request));
  v1::ListCheckpointsResponse response;
  const absl::Status status = ReadJob("parent", request.parent(), [&](store::ReadTransaction& transaction, v1::Job& job) {
    return FillPage(transaction.ListKeptCheckpoints(job.name()), page, response.mutable_checkpoints(),
                    response.mutable_next_page_token());
  });
  return Answer(status, std::move(response));
}

absl::StatusOr<v1::PlanResult> ControlPlane::GetPlan(const v1::GetPlanRequest& request) {
  std::string name = request.name();
  if (absl::EndsWith(name, kPlanEnd)) name.resize(name.size() - (sizeof(kPlanEnd) - 1));
  v1::PlanResult plan;
  const absl::Status status = ReadJob("name", name, [&](store::ReadTransaction& transaction, v1::Job& job) {
    return Take(transaction.GetPlan(job.name()), job, "no plan yet", &plan);
  });
  return Answer(status, std::move(plan));
}

absl::StatusOr<v1::FlightRecord> ControlPlane::GetFlightRecord(const v1::GetFlightRecordRequest& request) {
  std::string name = request.name();
  if (absl::EndsWith(name, kFlightRecordEnd)) name.resize(name.size() - (sizeof(kFlightRecordEnd) - 1));
  v1::FlightRecord record;
  const absl::Status status = ReadJob("name", name, [&](store::ReadTransaction& transaction, v1::Job& job) {
    return Take(transaction.GetFlightRecord(job.name()), job,
                "no flight record: one is taken when an attempt hangs or a rank of it dies", &record);
  });
  if (status.ok() && !record.has_analysis()) Analyze(&record);
  return Answer(status, std::move(record));
}

absl::StatusOr<v1::QueryMetricsResponse> ControlPlane::QueryMetrics(const v1::QueryMetricsRequest& request) {
  if (request.max_points() < 0) return FieldError("max_points", absl::StrCat(request.max_points()), "must not be negative");
  if (request.after_step() < 0) return FieldError("after_step", absl::StrCat(request.after_step()), "must not be negative");
  if (request.max_rank_reports() < 0)
    return FieldError("max_rank_reports", absl::StrCat(request.max_rank_reports()), "must not be negative");
  const int64_t most = request.max_points() == 0 ? kMostPoints : std::clamp<int64_t>(request.max_points(), 2, kMostPoints);
  v1::QueryMetricsResponse response;
  const absl::Status status =
      ReadJob("name", request.name(), [&](store::ReadTransaction& transaction, v1::Job& job) -> absl::Status {
        // Of millions of reports only what the choice looks at is kept; then those that are chosen are read.
        std::vector<CurvePoint> curve;
        const absl::Status read = transaction.ForEachMetrics(
            job.name(), request.after_step(), [&](const v1::StepMetrics& one) { curve.push_back(AsCurvePoint(one)); });
        if (!read.ok()) return read;
        response.set_steps(static_cast<int64_t>(curve.size()));
        RETURN_IF_ERROR(FillRankReports(transaction, job, request.max_rank_reports(), response.mutable_rank_reports()));
        const std::set<size_t> chosen = Downsample(curve, static_cast<size_t>(most));
        size_t place = 0;
        return transaction.ForEachMetrics(job.name(), request.after_step(), [&](const v1::StepMetrics& one) {
          if (chosen.count(place++) > 0) *response.add_points() = one;
        });
      });
  return Answer(status, std::move(response));
}

absl::StatusOr<v1::ListLogsResponse> ControlPlane::ListLogs(const v1::ListLogsRequest& request) {
  ASSIGN_OR_RETURN(const auto size, PageSize(request.page_size(), kLogsPage));
  if (request.after_sequence() < 0)
    return FieldError("after_sequence", absl::StrCat(request.after_sequence()), "must not be negative");
  v1::ListLogsResponse response;
  const absl::Status status = ReadJob("parent", request.parent(), [&](store::ReadTransaction& transaction, v1::Job& job) {
    store::LogQuery query;
    query.job = job.name();
    query.after_sequence = request.after_sequence();
    query.limit = size;
    query.tail = request.tail();
    if (request.has_attempt()) query.attempt = request.attempt();
    if (request.has_rank()) query.rank = request.rank();
    return Fill(transaction.ListLogs(query), response.mutable_lines());
  });
  if (!status.ok()) return status;
  response.set_last_sequence(response.lines().empty() ? request.after_sequence() : response.lines().rbegin()->sequence());
  return response;
}

}  // namespace legoai::server
