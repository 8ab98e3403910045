#include "tests/scenarios/clients.h"

#include <unistd.h>

#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/enum_text.h"
#include "proto/errors.h"
#include "server/rpc/grpc_status.h"
#include "tests/service/service_processes.h"

namespace legoai::scenarios {
namespace {

using service::Ask;
using Stub = v1::ControlPlane::Stub;

constexpr double kAnswerSeconds = 2;
constexpr char kProject[] = "projects/default";

}  // namespace

void Calls::Add(const Calls& other) {
  submitted += other.submitted, repeated += other.repeated, cancelled += other.cancelled, saving += other.saving;
  retried += other.retried, looked += other.looked, unanswered += other.unanswered;
}

Client::Client(std::string name, uint32_t seed, const ClientOptions* options, Stub* stub, Told* told)
    : name_(std::move(name)), random_(seed), options_(options), stub_(stub), told_(told) {}

void Client::Run(const std::atomic<bool>& stop) {
  while (!stop) {
    Act();
    usleep(50'000 + 1000 * Draw(300));
  }
}

Calls Client::TakeCalls() { return std::exchange(calls_, Calls()); }

void Client::Act() {
  const uint32_t draw = Draw(100);
  if (draw < 20) return Submit();
  if (draw < 33) return Repeat();
  if (draw < 37) return RepeatWithOtherContent();
  if (draw < 42) return Cancel();
  if (draw < 49 && options_->retries) return Retry();
  if (draw < 70) return Get();
  Look();
}

bool IsUnanswered(const grpc::Status& status) {
  // What a server that ends has not taken yet, or cuts off, gRPC calls cancelled, as `lego` knows (server/cli/client.cc).
  const bool is_cut_off = status.error_code() == grpc::StatusCode::CANCELLED && status.error_details().empty();
  return is_cut_off || status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
}

bool Client::Unanswered(const grpc::Status& status) {
  const bool unanswered = IsUnanswered(status);
  calls_.unanswered += unanswered;
  return unanswered;
}

void Client::Unexpected(const std::string& call, const grpc::Status& status) {
  if (Unanswered(status)) return;
  told_->Break(absl::StrCat("clients are answered as the API says: ", call, " gave code ", static_cast<int>(status.error_code()),
                            ", ", status.error_message()));
}

std::string Client::NextRequest() { return absl::StrCat(name_, "-request-", ++requests_); }

std::string Client::Any(const std::map<std::string, ToldJob>& known, bool final_too) {
  std::vector<std::string> jobs;
  for (const auto& [name, job] : known) {
    if (final_too || !IsFinalState(job.state)) jobs.push_back(name);
  }
  return jobs.empty() ? "" : jobs[Draw(jobs.size())];
}

std::map<std::string, ToldJob> Client::OwnOf(const std::map<std::string, ToldJob>& known) const {
  std::map<std::string, ToldJob> own;
  for (const Sent& sent : sent_) {
    if (const auto job = known.find(sent.job); job != known.end()) own.insert(*job);
  }
  return own;
}

void Client::Create(Sent* sent) {
  const auto before = told_->Known();
  told_->Sent(sent->request.request_id(), &sent->request.spec());
  v1::Job job;
  const grpc::Status status = Ask(*stub_, &Stub::CreateJob, sent->request, &job, kAnswerSeconds);
  if (!status.ok()) return Unexpected(absl::StrCat("CreateJob of ", sent->request.request_id()), status);
  sent->job = job.name();
  told_->Accepted(sent->request.request_id(), job);
  told_->Heard(before, job);
}

bool Client::Full() const {
  int active = 0;
  for (const auto& [name, job] : told_->Known()) active += !IsFinalState(job.state);
  return active >= options_->most_active;
}

void Client::Submit() {
  if (Full()) return Get();
  Sent& sent = sent_.emplace_back();
  sent.request.set_parent(kProject);
  sent.request.set_request_id(NextRequest());
  *sent.request.mutable_spec() = options_->specs[Draw(options_->specs.size())];
  sent.request.mutable_spec()->mutable_policy()->set_priority(Draw(3));
  ++calls_.submitted;
  Create(&sent);
}

void Client::Repeat() {
  if (sent_.empty()) return;
  ++calls_.repeated;
  Create(&sent_[Draw(sent_.size())]);
}

void Client::RepeatWithOtherContent() {
  if (sent_.empty()) return;
  const Sent& sent = sent_[Draw(sent_.size())];
  if (sent.job.empty()) return;
  v1::CreateJobRequest other = sent.request;
  other.mutable_spec()->set_display_name("another");
  ++calls_.repeated;
  v1::Job job;
  const grpc::Status status = Ask(*stub_, &Stub::CreateJob, other, &job, kAnswerSeconds);
  if (Unanswered(status) || status.error_code() == grpc::StatusCode::ALREADY_EXISTS) return;
  told_->Break(absl::StrCat("one job per request_id: ", other.request_id(), " with another content gave ", job.name(),
                            " and code ", static_cast<int>(status.error_code())));
}

void Client::Cancel() {
  const auto before = told_->Known();
  v1::CancelJobRequest request;
  request.set_name(Any(options_->ends_others ? before : OwnOf(before), /*final_too=*/Draw(4) == 0));
  if (request.name().empty()) return;
  request.set_save(Draw(3) > 0);
  if (request.save() && Draw(3) == 0) request.set_grace_seconds(0.5);
  ++calls_.cancelled;
  calls_.saving += request.save();
  v1::Job job;
  const grpc::Status status = Ask(*stub_, &Stub::CancelJob, request, &job, kAnswerSeconds);
  if (!status.ok()) return Unexpected(absl::StrCat("CancelJob of ", request.name()), status);
  told_->Heard(before, job);
  told_->CancelAcknowledged(job.name());
}

void Client::Retry() {
  if (Full()) return Get();
  const auto before = told_->Known();
  std::string request_id, name;
  if (!retries_.empty() && Draw(3) == 0) {
    std::tie(request_id, name) = *std::next(retries_.begin(), Draw(retries_.size()));
  } else {
    request_id = NextRequest(), name = Any(before, /*final_too=*/true);
  }
  if (name.empty()) return;
  v1::RetryJobRequest request;
  request.set_name(name);
  request.set_request_id(request_id);
  told_->Sent(request_id);
  ++calls_.retried;
  v1::Job job;
  const grpc::Status status = Ask(*stub_, &Stub::RetryJob, request, &job, kAnswerSeconds);
  const v1::JobState state = before.count(name) > 0 ? before.at(name).state : v1::JOB_STATE_UNSPECIFIED;
  const bool may = state == v1::FAILED || state == v1::CANCELLED;
  const auto violation = GetFieldViolation(server::FromGrpcStatus(status));
  const bool none_is_whole = violation && violation->field() == "from_step";
  if (status.error_code() == grpc::StatusCode::FAILED_PRECONDITION && (!may || none_is_whole)) return;
  if (!status.ok()) return Unexpected(absl::StrCat("RetryJob of ", name, ", told ", EnumText(state), ","), status);
  if (state == v1::SUCCEEDED)
    told_->Break(absl::StrCat("a job that succeeded is not tried again: ", job.name(), " tries ", name));
  retries_[request_id] = name;
  if (job.retry_of() != name)
    told_->Break(absl::StrCat("a retry names what it tries again: ", job.name(), " says ", job.retry_of()));
  told_->Accepted(request_id, job);
  told_->Heard(before, job);
}

void Client::Get() {
  const auto before = told_->Known();
  v1::GetJobRequest request;
  request.set_name(Any(before, /*final_too=*/true));
  if (request.name().empty()) return;
  ++calls_.looked;
  v1::Job job;
  const grpc::Status status = Ask(*stub_, &Stub::GetJob, request, &job, kAnswerSeconds);
  if (!status.ok()) return Unexpected(absl::StrCat("GetJob of ", request.name()), status);
  told_->Heard(before, job);
}

bool Client::Look() {
  const auto before = told_->Known();
  v1::ListJobsRequest request;
  request.set_parent(kProject);
  request.set_page_size(1000);
  ++calls_.looked;
  std::set<std::string> listed;
  do {
    v1::ListJobsResponse response;
    const grpc::Status status = Ask(*stub_, &Stub::ListJobs, request, &response, kAnswerSeconds);
    if (!status.ok()) {
      Unexpected("ListJobs", status);
      return false;
    }
    for (const v1::Job& job : response.jobs()) {
      told_->Heard(before, job);
      listed.insert(job.name());
    }
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  for (const auto& [name, job] : before) {
    if (listed.count(name) == 0) told_->Break(absl::StrCat("no acknowledged job is lost: ", name, " is not listed"));
  }
  return true;
}

}  // namespace legoai::scenarios
