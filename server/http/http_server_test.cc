#include "server/http/http_server.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <list>
#include <thread>

#include "absl/strings/str_cat.h"
#include "core/process/mutex.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/errors.h"
#include "server/http/testing/http_test.h"

namespace legoai::server {
namespace {

using http_test::Answer;
using http_test::Client;
using http_test::Parse;
using http_test::Request;
using nlohmann::json;

constexpr char kJob[] = "projects/default/jobs/01J";

// A service that keeps one job in memory, whose handlers can be made to wait.
class HttpServerTest : public http_test::HttpTest {
 protected:
  void SetUp() override {
    HttpTest::SetUp();
    const MutexLock lock(mutex_);
    job_.set_name(kJob);
    job_.set_version(1);
    job_.set_state(v1::RUNNING);
  }

  Handlers MakeHandlers() override {
    Handlers handlers = HttpTest::MakeHandlers();
    handlers.unary["GetPredictedTrace"] = [](const Handlers::Message&, const auto&, Handlers::Message* response) {
      auto* const file = google::protobuf::DynamicCastToGenerated<v1::TraceFile>(response);
      file->set_file_name("01-predicted.json.gz");
      file->set_trace_gzip(std::string("\x1f\x8b\0 and so on", 12));
      return absl::OkStatus();
    };
    handlers.unary["GetStepTrace"] = [](const auto&, const auto&, auto*) { return absl::NotFoundError("no such trace"); };
    handlers.unary["GetJob"] = [this](const auto& request, const auto&, auto* response) { return GetJob(request, response); };
    handlers.unary["ListJobs"] = [](const auto& request, const auto&, auto*) {
      const auto& list = static_cast<const v1::ListJobsRequest&>(request);
      return list.filter().empty() ? absl::OkStatus() : FieldError("filter", list.filter(), "has no such field");
    };
    handlers.unary["CancelJob"] = [](const auto& request, const auto&, auto* response) {
      static_cast<v1::Job*>(response)->set_reason(static_cast<const v1::CancelJobRequest&>(request).reason());
      return absl::OkStatus();
    };
    handlers.unary["Simulate"] = [this](const auto&, const auto& cancelled, auto*) { return WaitForEnd(cancelled); };
    handlers.streams["Plan"] = [this](const auto&, const auto& send, const auto& cancelled) {
      v1::PlanResponse response;
      response.mutable_progress()->set_captured(3);
      send(response);
      if (Waits()) return WaitForEnd(cancelled);
      response.mutable_result()->set_explanation("best");
      send(response);
      return absl::OkStatus();
    };
    handlers.poll_job = [this](const v1::WatchJobRequest& request, WatchState*) { return PollJob(request); };
    return handlers;
  }

  absl::Status GetJob(const google::protobuf::Message& request, google::protobuf::Message* response) {
    const MutexLock lock(mutex_);
    if (static_cast<const v1::GetJobRequest&>(request).name() != kJob) return absl::NotFoundError("there is no such job");
    response->CopyFrom(job_);
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<v1::WatchJobResponse>> PollJob(const v1::WatchJobRequest& request) {
    const MutexLock lock(mutex_);
    if (request.name() != kJob) return absl::NotFoundError("there is no such job");
    // As the service does it: a final job always is an answer.
    if (job_.version() <= request.after_version() && job_.state() == v1::RUNNING) return std::nullopt;
    v1::WatchJobResponse response;
    *response.mutable_job() = job_;
    return response;
  }
  absl::Status WaitForEnd(const Handlers::Cancelled& cancelled) {
    while (!cancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    MutexLock lock(mutex_);
    ++cancelled_;
    changed_.NotifyAll();
    while (hold_) changed_.Wait(lock);
    return absl::CancelledError("the client has left");
  }
  // Work waits until it is cancelled; with `hold` for longer.
  void MakeWorkWait(bool hold = false) {
    const MutexLock lock(mutex_);
    wait_ = true;
    hold_ = hold;
  }
  bool Waits() {
    const MutexLock lock(mutex_);
    return wait_;
  }
  void WaitForCancelled(int calls) {
    MutexLock lock(mutex_);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (cancelled_ < calls && changed_.WaitUntil(lock, deadline)) {
    }
    EXPECT_GE(cancelled_, calls);
  }
  void SetJob(int64_t version, v1::JobState state) {
    {
      const MutexLock lock(mutex_);
      job_.set_version(version);
      job_.set_state(state);
    }
    notifier_.JobChanged(kJob);
  }

  Mutex mutex_;
  Condition changed_;
  v1::Job job_ ABSL_GUARDED_BY(mutex_);
  bool wait_ ABSL_GUARDED_BY(mutex_) = false, hold_ ABSL_GUARDED_BY(mutex_) = false;
  int cancelled_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST_F(HttpServerTest, AnswersMethodsAsJson) {
  Start();
  const Answer got = Get(absl::StrCat("/v1/", kJob));
  EXPECT_EQ(got.code, 200);
  EXPECT_EQ(got.Json()["state"], "running");
  EXPECT_NE(got.head.find("X-Content-Type-Options: nosniff"), std::string::npos);
  EXPECT_NE(got.head.find("frame-ancestors 'none'"), std::string::npos);
  EXPECT_NE(got.head.find("Cache-Control: no-store"), std::string::npos);
  EXPECT_EQ(Post(absl::StrCat("/v1/", kJob, ":cancel"), R"({"reason": "enough"})").Json()["reason"], "enough");
}

TEST_F(HttpServerTest, ATraceIsAFile) {
  Start();
  const Answer got = Get(absl::StrCat("/v1/", kJob, "/predictedTrace"));
  EXPECT_EQ(got.code, 200);
  EXPECT_NE(got.head.find("Content-Type: application/gzip"), std::string::npos) << got.head;
  EXPECT_NE(got.head.find("Content-Disposition: attachment; filename=\"01-predicted.json.gz\""), std::string::npos) << got.head;
  EXPECT_EQ(got.head.find("Content-Encoding"), std::string::npos);
  EXPECT_EQ(got.body, std::string("\x1f\x8b\0 and so on", 12));
  EXPECT_EQ(Get(absl::StrCat("/v1/", kJob, "/stepTraces/1-2-3")).code, 404);
  EXPECT_EQ(Get(absl::StrCat("/v1/", kJob, "/stepTraces")).Json()["step_traces"].size(), 0u);
}

TEST_F(HttpServerTest, WhoChangesSomethingIsInTheLog) {
  Mutex mutex;
  std::vector<std::string> calls;  // all before the server's end
  SetLogSink([&](std::string_view line) {
    const json parsed = json::parse(line);
    const MutexLock lock(mutex);
    if (parsed["message"] == "call")
      calls.push_back(absl::StrCat(parsed["method"].get<std::string>(), " ", parsed["way"].get<std::string>(), " ",
                                   parsed["resource"].get<std::string>()));
  });
  Start();
  EXPECT_EQ(Get(absl::StrCat("/v1/", kJob)).code, 200);
  EXPECT_EQ(Post(absl::StrCat("/v1/", kJob, ":cancel"), "{}").code, 200);
  EXPECT_EQ(Post("/v1/plan", "{}").code, 200);
  server_.reset();
  EXPECT_EQ(calls, (std::vector<std::string>{absl::StrCat("CancelJob http ", kJob), "Plan http "}));
}

TEST_F(HttpServerTest, ErrorsAreDataWithTheRightCode) {
  Start();
  const Answer missing = Get("/v1/projects/default/jobs/none");
  EXPECT_EQ(missing.code, 404);
  EXPECT_EQ(missing.Json()["error"]["status"], "NOT_FOUND");
  const Answer filter = Get("/v1/projects/default/jobs?filter=a");
  EXPECT_EQ(filter.code, 400);
  EXPECT_EQ(filter.Json()["error"]["details"][0]["field"], "filter");
  EXPECT_EQ(Get("/v1/projects/default/jobs?colour=red").Json()["error"]["details"][0]["field"], "colour");
  for (const char* path : {"/v1/nothing", "/v1/", "/v1"}) {
    const Answer unknown = Get(path);
    EXPECT_EQ(unknown.code, 404) << path;
    EXPECT_EQ(unknown.Json()["error"]["status"], "NOT_FOUND") << path;
  }
  EXPECT_EQ(Call("DELETE", "/v1/workers").code, 405);
  EXPECT_EQ(Post(absl::StrCat("/v1/", kJob, ":cancel"), "{").code, 400);
  EXPECT_EQ(Post(absl::StrCat("/v1/", kJob, ":cancel"), "{}", "text/plain").code, 415);
  EXPECT_EQ(Get("/index.html").code, 404);
}

TEST_F(HttpServerTest, WhatIsAbsentIsEmptyForWhoAsksSo) {
  Start();
  const Answer absent = Get("/v1/projects/default/jobs/none", "Prefer: absent=204\r\n");
  EXPECT_EQ(absent.code, 204);
  EXPECT_EQ(absent.body, "");
  EXPECT_EQ(Get(absl::StrCat("/v1/", kJob), "Prefer: absent=204\r\n").code, 200);
  EXPECT_EQ(Get("/v1/nothing", "Prefer: absent=204\r\n").code, 404) << "no such path";
  EXPECT_EQ(Get("/v1/projects/default/jobs?filter=a", "Prefer: absent=204\r\n").code, 400);
}

TEST_F(HttpServerTest, GivesTheCatalogAndItsClusters) {
  Start();
  EXPECT_GT(Get("/catalog.json").Json()["models"].size(), 0u);
  EXPECT_EQ(Get("/catalog/clusters/h100-sxm-80:8x2").Json()["nodes"], 2);
  const Answer unknown = Get("/catalog/clusters/h100:8");
  EXPECT_EQ(unknown.code, 400);
  EXPECT_EQ(unknown.Json()["error"]["details"][0]["field"], "cluster");
}

TEST_F(HttpServerTest, OtherSitesAreRefused) {
  Start();
  const std::string rebound = "GET /v1/workers HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(Parse(Ask(rebound)).code, 403);
  const std::string origin = "Connection: close\r\nContent-Type: application/json\r\nOrigin: http://evil.example\r\n";
  EXPECT_EQ(Parse(Ask(Request("POST", absl::StrCat("/v1/", kJob, ":cancel"), "{}", origin))).code, 403);
}

TEST_F(HttpServerTest, WatchSendsEveryVersionOnceAndEndsWithTheJob) {
  Start();
  Client client(server_->port());
  client.Send(Request("GET", absl::StrCat("/v1/", kJob, ":watch")));
  EXPECT_NE(client.ReadUntil("id: 1\nevent: job\ndata: {").find("text/event-stream"), std::string::npos);
  SetJob(2, v1::RUNNING);
  client.ReadUntil("id: 2\nevent: job\n");
  SetJob(3, v1::SUCCEEDED);
  const std::string text = client.ReadUntil("event: end");
  EXPECT_NE(text.find("id: 3\nevent: job\n"), std::string::npos);
  EXPECT_EQ(text.find("id: 1\n", text.find("id: 1\n") + 1), std::string::npos);
}

TEST_F(HttpServerTest, WatchGoesOnWhereItWas) {
  Start();
  SetJob(7, v1::RUNNING);
  Client client(server_->port());
  client.Send(Request("GET", absl::StrCat("/v1/", kJob, ":watch"), "", "Last-Event-ID: 7\r\n"));
  client.ReadUntil("text/event-stream");
  SetJob(8, v1::FAILED);
  const std::string text = client.ReadUntil("event: end");
  EXPECT_EQ(text.find("id: 7\n"), std::string::npos) << text;
  EXPECT_NE(text.find("id: 8\n"), std::string::npos);
  EXPECT_EQ(Get(absl::StrCat("/v1/", kJob, ":watch"), "Last-Event-ID: 8\r\n").code, 204);
  EXPECT_EQ(Get(absl::StrCat("/v1/", kJob, ":watch"), "Last-Event-ID: x\r\n").code, 400);
  EXPECT_EQ(Get("/v1/projects/default/jobs/none:watch").code, 404);
}

TEST_F(HttpServerTest, ChangesAreNamedTogether) {
  Start();
  Client client(server_->port());
  client.Send(Request("GET", "/v1/events"));
  client.ReadUntil("keep-alive");
  notifier_.JobChanged("projects/default/jobs/a");
  notifier_.WorkersChanged();
  EXPECT_NE(client.ReadUntil("event: workers").find("projects/default/jobs/a"), std::string::npos);
  for (int i = 0; i < 1000; ++i) notifier_.JobChanged(absl::StrCat("projects/default/jobs/", i));
  client.ReadUntil("\"all\":true");
}

TEST_F(HttpServerTest, SilentStreamsSayThatTheyLive) {
  Start({.keep_alive_seconds = 0.3});
  Client client(server_->port());
  client.Send(Request("GET", absl::StrCat("/v1/", kJob, ":watch")));
  client.ReadUntil(": keep-alive\n");
}

TEST_F(HttpServerTest, PlanIsAStream) {
  Start();
  Client client(server_->port());
  client.Send(Request("POST", "/v1/plan", "{}", "Content-Type: application/json\r\n"));
  const std::string text = client.ReadUntil("event: result");
  EXPECT_NE(text.find("event: progress\ndata: {"), std::string::npos) << text;
}

TEST_F(HttpServerTest, WhoLeavesEndsTheWork) {
  MakeWorkWait();
  Start();
  {
    Client plan(server_->port()), simulate(server_->port());
    plan.Send(Request("POST", "/v1/plan", "{}", "Content-Type: application/json\r\n"));
    simulate.Send(Request("POST", "/v1/simulate", "{}", "Content-Type: application/json\r\n"));
    plan.ReadUntil("event: progress");
  }
  WaitForCancelled(2);
}

TEST_F(HttpServerTest, TheEndOfTheServerEndsTheWork) {
  MakeWorkWait();
  Start();
  Client plan(server_->port()), watch(server_->port());
  plan.Send(Request("POST", "/v1/plan", "{}", "Content-Type: application/json\r\n"));
  watch.Send(Request("GET", absl::StrCat("/v1/", kJob, ":watch")));
  plan.ReadUntil("event: progress");
  watch.ReadUntil("id: 1");
  server_.reset();
  WaitForCancelled(1);
  plan.ReadAll();
  watch.ReadAll();
}

// Work that takes its time keeps the server from its end; meanwhile others may ask.
TEST_F(HttpServerTest, WhoAsksWhileItEndsIsRefused) {
  MakeWorkWait(/*hold=*/true);
  Start();
  Client plan(server_->port()), simulate(server_->port());
  plan.Send(Request("POST", "/v1/plan", "{}", "Content-Type: application/json\r\n"));
  plan.ReadUntil("event: progress");
  std::thread end([this] { server_.reset(); });
  WaitForCancelled(1);
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(100)); };
  pause();  // by then it waits for the plan; where it does not yet, the call is taken and ended
  simulate.Send(Request("POST", "/v1/simulate", "{}", "Connection: close\r\nContent-Type: application/json\r\n"));
  pause();
  {
    const MutexLock lock(mutex_);
    hold_ = false;
  }
  changed_.NotifyAll();
  end.join();
  const std::string answer = simulate.ReadAll();
  if (!answer.empty()) {
    EXPECT_NE(Parse(answer).code, 200);
  }
}

TEST_F(HttpServerTest, StreamsAreBoundedAndGivenBack) {
  Start({.max_streams = 2});
  {
    std::list<Client> open;
    OpenStream(&open);
    Client watch(server_->port());
    watch.Send(Request("GET", absl::StrCat("/v1/", kJob, ":watch")));
    watch.ReadUntil("id: 1");
    const Answer third = Get("/v1/events");
    EXPECT_EQ(third.code, 503);
    EXPECT_EQ(third.Json()["error"]["status"], "RESOURCE_EXHAUSTED");
  }
  ExpectPlaceForStream();
}

TEST_F(HttpServerTest, ConnectionsAreBoundedAndSilentOnesDoNotLock) {
  Start({.max_connections = 3});
  {
    std::list<Client> open;
    for (int i = 0; i < 3; ++i) OpenStream(&open);
    Client further(server_->port());
    further.Send(Request("GET", "/healthz"));
    const Answer refused = Parse(further.ReadAll());
    EXPECT_EQ(refused.code, 503);
    EXPECT_NE(refused.body.find("as many connections as it takes"), std::string::npos);
  }
  std::list<Client> silent;
  for (int i = 0; i < 100; ++i) silent.emplace_back(server_->port());
  silent.clear();
  EXPECT_EQ(Get("/healthz").code, 200);
}

// Whatever is refused is refused as data, also what never became a request.
void ExpectRefused(const Answer& answer, int code, const std::string& what) {
  EXPECT_EQ(answer.code, code) << answer.head;
  EXPECT_NE(answer.head.find("Content-Type: application/json"), std::string::npos) << answer.head;
  const json error = answer.Json()["error"];
  EXPECT_EQ(error["code"], code) << answer.body;
  EXPECT_NE(error["message"].get<std::string>().find(what), std::string::npos) << answer.body;
}

TEST_F(HttpServerTest, OversizedRequestsAreRefused) {
  Start({.max_body_bytes = 1000, .max_header_bytes = 2000});
  const std::string cancel = absl::StrCat("/v1/", kJob, ":cancel");
  EXPECT_EQ(Post(cancel, absl::StrCat("{\"reason\": \"", std::string(900, 'a'), "\"}")).code, 200);
  const std::string limits = "the request line and headers may have 2000 bytes, the body 1000";
  ExpectRefused(Post(cancel, absl::StrCat("{\"reason\": \"", std::string(2000, 'a'), "\"}")), 413, limits);
  // More than the sockets hold: whoever answered before it is read would be heard by nobody.
  ExpectRefused(Post(cancel, std::string(20 << 20, 'a')), 413, limits);
  const std::string chunk = absl::StrCat("800\r\n", std::string(2048, 'a'), "\r\n0\r\n\r\n");
  const std::string chunked = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n";
  ExpectRefused(Parse(Ask(Request("POST", cancel, "", chunked) + chunk)), 413, limits);
  // libevent does not tell these from others that it cannot read.
  ExpectRefused(Get("/healthz", absl::StrCat("X-Long: ", std::string(5000, 'a'), "\r\n")), 400, limits);
  ExpectRefused(Get(absl::StrCat("/healthz?", std::string(5000, 'a'))), 400, limits);
  EXPECT_EQ(Get("/healthz").code, 200);
  EXPECT_NE(Get("/metrics").body.find("legoai_http_requests_total{code=\"413\",method=\"other\"} 3\n"), std::string::npos);
}

TEST_F(HttpServerTest, WhatIsNoRequestIsRefused) {
  Start();
  for (const std::string& text :
       {std::string("GET\r\n\r\n"), std::string("GET / HTTP/9.9\r\n\r\n"), std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")}) {
    ExpectRefused(Parse(Ask(text)), 400, "it must be HTTP/1.1");
  }
  ExpectRefused(Parse(Ask("POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n")), 400, "must be the number of bytes of the body");
  ExpectRefused(Parse(Ask("GET / HTTP/1.1\r\nno colon\r\n\r\n")), 400, "is no header");
}

TEST_F(HttpServerTest, MethodsThatNoPathHasAreRefused) {
  Start();
  for (const char* method : {"BREW", "TRACE", "OPTIONS", "DELETE"}) {
    const Answer place = Call(method, "/workers");
    ExpectRefused(place, 405, "takes GET");
    EXPECT_NE(place.head.find("Allow: GET, HEAD"), std::string::npos) << place.head;
    const Answer call = Call(method, "/v1/projects/default/jobs");
    ExpectRefused(call, 405, "takes GET, POST");
    EXPECT_NE(call.head.find("Allow: GET, POST"), std::string::npos) << call.head;
  }
  Client tunnel(server_->port());  // libevent leaves the connection open
  tunnel.Send("CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ExpectRefused(Parse(tunnel.ReadUntil("}}\n")), 405, "takes GET");
}

TEST_F(HttpServerTest, GarbageDoesNotStopIt) {
  Start();
  for (const std::string& text :
       {std::string("\r\n\r\n"), std::string("GET\r\n\r\n"), std::string(1000, '\0') + "\r\n\r\n",
        std::string("POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n"), std::string("GET / HTTP/9.9\r\n\r\n"),
        std::string("GET /v1/%00%ff HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
        std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")}) {
    Client client(server_->port());
    client.Send(text);
    client.ReadSome(200);
  }
  EXPECT_EQ(Get("/healthz").code, 200);
}

TEST_F(HttpServerTest, ServesThePage) {
  const std::string folder = testing::TempDir() + "/page";
  std::filesystem::create_directories(folder + "/assets");
  std::ofstream(folder + "/index.html") << "<!doctype html>";
  std::ofstream(folder + "/assets/app-1.js") << "let x;";
  Start({.web_directory = folder});
  const Answer index = Get("/jobs/01J");
  EXPECT_EQ(index.code, 200);
  EXPECT_EQ(index.body, "<!doctype html>");
  EXPECT_NE(Get("/assets/app-1.js").head.find("text/javascript"), std::string::npos);
  const size_t etag = index.head.find("ETag: ") + 6;
  const Answer same =
      Get("/", absl::StrCat("If-None-Match: ", index.head.substr(etag, index.head.find("\r\n", etag) - etag), "\r\n"));
  EXPECT_EQ(same.code, 304);
  EXPECT_EQ(same.body, "");
  EXPECT_EQ(Get("/../secret").code, 200);  // a place in the page, as far as the server knows
  EXPECT_EQ(Get("/../secret.txt").code, 404);
  const Answer head = Call("HEAD", "/");
  EXPECT_EQ(head.body, "");
  EXPECT_NE(head.head.find("Content-Length: 15"), std::string::npos) << head.head;
  EXPECT_EQ(Post("/", "{}").code, 405);
}

TEST_F(HttpServerTest, CountsWhatItAnswers) {
  Start();
  Get("/healthz");
  Get("/nothing.txt");
  const Answer metrics = Get("/metrics");
  EXPECT_NE(metrics.head.find("text/plain; version=0.0.4"), std::string::npos);
  EXPECT_NE(metrics.body.find("legoai_http_requests_total{code=\"200\",method=\"GET\"} 1\n"), std::string::npos) << metrics.body;
  EXPECT_NE(metrics.body.find("legoai_http_requests_total{code=\"404\",method=\"GET\"} 1\n"), std::string::npos);
}

TEST_F(HttpServerTest, APortInUseIsNamed) {
  Start();
  HttpOptions options;
  options.port = server_->port();
  const auto second = HttpServer::Start(options, MakeHandlers(), &pool_, &notifier_, &metrics_);
  const auto violation = GetFieldViolation(second.status());
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->field(), "--http");
  EXPECT_EQ(violation->value(), absl::StrCat("127.0.0.1:", options.port));
}

TEST_F(HttpServerTest, AMethodWithoutHandlerIsNoServer) {
  Handlers handlers = MakeHandlers();
  handlers.unary.erase("GetPlan");
  EXPECT_FALSE(HttpServer::Start({}, std::move(handlers), &pool_, &notifier_, &metrics_).ok());
}

}  // namespace
}  // namespace legoai::server
