#include "worker/agent/testing/scripted_server.h"

#include <chrono>
#include <utility>

namespace legoai::agent::testing {

std::vector<v1::StepMetrics> ScriptedServer::State::Metrics(int64_t epoch) const {
  std::vector<v1::StepMetrics> metrics;
  for (const auto& [sequence, fact] : telemetry) {
    if (fact.has_metrics() && (epoch == 0 || fact.lease().epoch() == epoch)) metrics.push_back(fact.metrics());
  }
  return metrics;
}

std::vector<std::string> ScriptedServer::State::Logs() const {
  std::vector<std::string> logs;
  for (const auto& [sequence, fact] : telemetry) {
    if (fact.has_log()) logs.push_back(fact.log().text());
  }
  return logs;
}

std::optional<v1::AttemptEnded> ScriptedServer::State::Ended(int64_t epoch) const {
  for (const auto& [sequence, fact] : telemetry) {
    if (fact.has_ended() && fact.lease().epoch() == epoch) return fact.ended();
  }
  return std::nullopt;
}

ScriptedServer::ScriptedServer() { ComeBack(); }
ScriptedServer::~ScriptedServer() { GoAway(); }

std::string ScriptedServer::address() const { return "127.0.0.1:" + std::to_string(port_); }

void ScriptedServer::ComeBack() {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:" + std::to_string(port_), grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  port_ = port;
}

void ScriptedServer::GoAway() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
}

void ScriptedServer::Send(v1::ToAgent message) {
  const MutexLock lock(mutex_);
  if (pipe_ != nullptr) pipe_->Write(message);
}

void ScriptedServer::Change(const std::function<void(State&)>& change) {
  const MutexLock lock(mutex_);
  change(state_);
}

bool ScriptedServer::Await(const std::function<bool(const State&)>& condition) {
  MutexLock lock(mutex_);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(3);
  while (!condition(state_) && changed_.WaitUntil(lock, deadline)) {
  }
  return condition(state_);
}

ScriptedServer::State ScriptedServer::Get() {
  const MutexLock lock(mutex_);
  return state_;
}

grpc::Status ScriptedServer::Connect(grpc::ServerContext*, Pipe* pipe) {
  v1::FromAgent message;
  if (!pipe->Read(&message) || !message.has_hello()) return {grpc::StatusCode::INVALID_ARGUMENT, "the first message is no hello"};
  {
    const MutexLock lock(mutex_);
    state_.hellos.push_back(message.hello());
    changed_.NotifyAll();
    if (!state_.refusal.ok()) return state_.refusal;
    v1::ToAgent answer;
    const bool knows = state_.acknowledges && !state_.telemetry.empty();
    answer.mutable_welcome()->set_acknowledged_telemetry(knows ? state_.telemetry.rbegin()->first : 0);
    answer.mutable_welcome()->set_heartbeat_interval_seconds(state_.heartbeat_interval_seconds);
    answer.mutable_welcome()->set_lease_ttl_seconds(60);
    pipe->Write(answer);
    pipe_ = pipe;
    ++state_.connections;
  }
  while (pipe->Read(&message)) Hear(message, pipe);
  const MutexLock lock(mutex_);
  if (pipe_ == pipe) pipe_ = nullptr;
  --state_.connections;
  changed_.NotifyAll();
  return grpc::Status::OK;
}

void ScriptedServer::Hear(const v1::FromAgent& message, Pipe* pipe) {
  const MutexLock lock(mutex_);
  v1::ToAgent answer;
  if (message.has_heartbeat()) {
    state_.heartbeats.push_back(message.heartbeat());
    answer.mutable_heartbeat()->set_sequence(message.heartbeat().sequence());
    answer.mutable_heartbeat()->mutable_revoked()->Assign(state_.revoked.begin(), state_.revoked.end());
    pipe->Write(answer);
  } else if (message.has_telemetry()) {
    ++state_.facts_heard;
    const auto [kept, is_new] = state_.telemetry.emplace(message.telemetry().sequence(), message.telemetry());
    if (!is_new && kept->second.SerializeAsString() != message.telemetry().SerializeAsString()) ++state_.contradictions;
    answer.mutable_telemetry_ack()->set_sequence(message.telemetry().sequence());
    if (state_.acknowledges) pipe->Write(answer);
  } else if (message.has_commit_request()) {
    state_.commit_requests.push_back(message.commit_request());
    Answer(message.commit_request(), pipe);
  } else if (message.has_goodbye()) {
    ++state_.goodbyes;
  }
  changed_.NotifyAll();
}

void ScriptedServer::Answer(const v1::CommitRequest& request, Pipe* pipe) {
  const std::optional<bool> verdict = state_.verdict ? state_.verdict(request) : true;
  if (!verdict) return;
  v1::ToAgent answer;
  answer.mutable_commit()->set_id(request.id());
  answer.mutable_commit()->set_commit(*verdict);
  if (!*verdict) answer.mutable_commit()->set_reason("the script says no");
  pipe->Write(answer);
}

}  // namespace legoai::agent::testing
