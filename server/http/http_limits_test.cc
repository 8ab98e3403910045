// Clients that take more than their part: of connections, of time, of streams, of memory.
#include <sys/resource.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <list>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/http/testing/http_test.h"

namespace legoai::server {
namespace {

using http_test::Answer;
using http_test::Client;
using http_test::Request;

constexpr char kWatch[] = "/v1/projects/default/jobs/01J:watch";
constexpr size_t kMegabyte = 1 << 20;

void Pause(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

// Of the test's process, in which the server runs.
int64_t ResidentKiB() {
  std::ifstream in("/proc/self/statm");
  int64_t total = 0, resident = 0;
  in >> total >> resident;
  return resident * 4;
}

class HttpLimitsTest : public http_test::HttpTest {
 protected:
  void SetUp() override {
    HttpTest::SetUp();
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  Handlers MakeHandlers() override {
    Handlers handlers = HttpTest::MakeHandlers();
    handlers.streams["Plan"] = [this](const auto&, const auto& send, const auto&) {
      v1::PlanResponse response;
      for (int i = 0; i < 150'000; ++i) {
        response.mutable_progress()->set_captured(i);
        response.mutable_progress()->set_elapsed_seconds(1.0 / 3 + i);
        send(response);
      }
      sent_ = true;
      response.mutable_result()->set_explanation("best");
      send(response);
      return absl::OkStatus();
    };
    // Each look finds a newer version of a large job.
    handlers.poll_job = [this](const v1::WatchJobRequest&, WatchState*) {
      v1::WatchJobResponse response;
      response.mutable_job()->set_version(++version_);
      response.mutable_job()->set_state(v1::RUNNING);
      response.mutable_job()->set_reason(std::string(kMegabyte, 'x'));
      return std::optional<v1::WatchJobResponse>(response);
    };
    return handlers;
  }
  // What /metrics says, to a client of its own.
  int64_t Gauge(const std::string& name) {
    const std::string text = GetFrom("127.0.9.9", "/metrics").body;
    const size_t at = text.find("\n" + name + " ");
    int64_t value = -1;
    EXPECT_NE(at, std::string::npos) << text;
    EXPECT_TRUE(absl::SimpleAtoi(text.substr(at + name.size() + 2, text.find('\n', at + 1) - at - name.size() - 2), &value));
    return value;
  }
  void AwaitConnections(int64_t most) {
    for (int i = 0; i < 600 && Gauge("legoai_http_connections") > most; ++i) Pause(100);
    EXPECT_LE(Gauge("legoai_http_connections"), most);
  }

  std::atomic<int64_t> version_{0};
  std::atomic<bool> sent_{false};
};

// Each sends a byte now and then, so that none is ever silent for long.
class Drips {
 public:
  void Add(int port, const std::string& from, const std::string& begin) { clients_.emplace_back(port, from.c_str()).Send(begin); }
  // Until all are closed, with `between` called now and then; how many had the answer 408.
  int DripUntilClosed(const std::function<void()>& between) {
    for (int round = 0; round < 600 && !clients_.empty(); ++round) {
      clients_.remove_if([&](Client& client) {
        client.Send("x");
        if (!client.IsClosed(0)) return false;
        timed_out_ += client.received().starts_with("HTTP/1.1 408");
        return true;
      });
      if (round % 5 == 0) between();
      Pause(100);
    }
    EXPECT_TRUE(clients_.empty()) << clients_.size() << " connections drip on";
    return timed_out_;
  }

 private:
  std::list<Client> clients_;
  int timed_out_ = 0;
};

TEST_F(HttpLimitsTest, FiveHundredDrippingConnectionsShutNobodyOut) {
  Start({.header_seconds = 3, .body_seconds = 3});
  Drips drips;
  for (int i = 0; i < 500; ++i) {
    const std::string from = absl::StrCat("127.0.0.", 2 + i % 5);
    drips.Add(
        server_->port(), from,
        i % 2 ? "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: "
              : "POST /v1/plan HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n");
  }
  const int timed_out = drips.DripUntilClosed([&] {
    EXPECT_EQ(Get("/healthz").code, 200);
    EXPECT_EQ(GetFrom("127.0.0.2", "/healthz").code, 200);  // one that shares its address with those that drip
  });
  EXPECT_EQ(timed_out, 500);
}

// All of one client: it loses its oldest ones, and still is served itself.
TEST_F(HttpLimitsTest, OneClientTakesOnlyItsPart) {
  Start({.header_seconds = 3, .max_connections_per_client = 20});
  Drips drips;
  for (int i = 0; i < 100; ++i) {
    drips.Add(server_->port(), "127.0.0.2", "GET /healthz HTTP/1.1\r\nX: ");
    EXPECT_EQ(GetFrom("127.0.0.2", "/healthz").code, 200);
  }
  EXPECT_LE(Gauge("legoai_http_connections"), 21);
  EXPECT_EQ(drips.DripUntilClosed([&] { EXPECT_EQ(GetFrom("127.0.0.2", "/healthz").code, 200); }), 100);
}

TEST_F(HttpLimitsTest, AClientWhoseConnectionsAreAllAnsweredWaits) {
  Start({.max_connections_per_client = 3});
  std::list<Client> open;
  for (int i = 0; i < 3; ++i) OpenStream(&open, "127.0.0.2");
  const Answer refused = GetFrom("127.0.0.2", "/healthz");
  EXPECT_EQ(refused.code, 429) << refused.head;
  EXPECT_NE(refused.head.find("Retry-After: "), std::string::npos) << refused.head;
  EXPECT_EQ(refused.Json()["error"]["status"], "RESOURCE_EXHAUSTED");
  EXPECT_NE(refused.body.find("your address (127.0.0.2) has 3 connections open"), std::string::npos) << refused.body;
  EXPECT_EQ(GetFrom("127.0.0.3", "/healthz").code, 200);
  open.pop_front();
  for (int i = 0; i < 600 && GetFrom("127.0.0.2", "/healthz").code != 200; ++i) Pause(100);
  EXPECT_EQ(GetFrom("127.0.0.2", "/healthz").code, 200);
}

TEST_F(HttpLimitsTest, StreamsAreBoundedForEachClient) {
  Start({.max_streams_per_client = 2});
  std::list<Client> open;
  for (int i = 0; i < 2; ++i) OpenStream(&open, "127.0.0.2");
  for (const char* path : {"/v1/events", kWatch}) {
    const Answer refused = GetFrom("127.0.0.2", path);
    EXPECT_EQ(refused.code, 429) << refused.head;
    EXPECT_NE(refused.head.find("Retry-After: "), std::string::npos) << refused.head;
    EXPECT_NE(refused.body.find("your address (127.0.0.2) has 2 streams of events open"), std::string::npos) << refused.body;
  }
  std::list<Client> other;
  OpenStream(&other, "127.0.0.3");
  EXPECT_TRUE(other.back().received().starts_with("HTTP/1.1 200"));
  open.clear();
  ExpectPlaceForStream("127.0.0.2");
}

// A request that takes as long as it may is no drip: times end where the answer begins.
TEST_F(HttpLimitsTest, WaitingForAnAnswerOrForTheNextRequestIsNotTimed) {
  Start({.header_seconds = 0.5, .body_seconds = 0.5});
  Client client(server_->port()), stream(server_->port());
  stream.Send(Request("GET", "/v1/events"));
  stream.ReadUntil("keep-alive");
  client.Send(Request("GET", "/healthz"));
  client.ReadUntil("ok\n");
  EXPECT_FALSE(client.IsClosed(1500));
  EXPECT_FALSE(stream.IsClosed(0));
  client.Send(Request("GET", "/healthz", "", "Connection: close\r\n"));
  client.ReadAll();
  EXPECT_NE(client.received().find("HTTP/1.1 200", 20), std::string::npos) << client.received();
}

// Kernel buffers take some of it; what the server itself holds is one message, and what has to come behind it.
TEST_F(HttpLimitsTest, StreamsOfSlowReadersHoldLittle) {
  Start({});
  Client watch(server_->port(), "127.0.0.2", 4096), plan(server_->port(), "127.0.0.2", 4096);
  watch.Send(Request("GET", kWatch));
  plan.Send(Request("POST", "/v1/plan", "{}", "Content-Type: application/json\r\n"));
  int64_t most = 0;
  const auto look = [&] {
    notifier_.JobChanged("projects/default/jobs/01J");
    most = std::max(most, Gauge("legoai_http_connection_bytes"));
  };
  for (int i = 0; i < 6000 && !sent_; ++i) {
    look();
    Pause(10);
  }
  ASSERT_TRUE(sent_);
  for (int i = 0; i < 40; ++i) {
    look();
    Pause(50);
  }
  EXPECT_GE(version_, 2);
  EXPECT_LT(most, int64_t{4 * kMegabyte});
  // The result is not left out: it comes when the client reads at last.
  EXPECT_NE(plan.ReadUntil("event: result").find("event: result"), std::string::npos);
}

TEST_F(HttpLimitsTest, MemoryOfABurstIsGivenBack) {
  Start({.max_connections_per_client = 512});
  const int64_t before = Gauge("legoai_http_connection_bytes"), resident_before = ResidentKiB();
  int64_t during = 0, resident_during = 0;
  {
    std::list<Client> burst;
    for (int i = 0; i < 500; ++i) {
      burst.emplace_back(server_->port(), "127.0.0.2")
          .Send(absl::StrCat(
              "POST /v1/plan HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 200000\r\n\r\n",
              std::string(100'000, 'x')));
    }
    for (int i = 0; i < 600 && during < 500 * 90'000; ++i) {
      during = Gauge("legoai_http_connection_bytes");
      Pause(10);
    }
    EXPECT_EQ(Gauge("legoai_http_connections"), 501);  // with the one that asks
    resident_during = ResidentKiB();
  }
  AwaitConnections(1);
  EXPECT_GT(during, 500 * 90'000);
  EXPECT_LE(Gauge("legoai_http_connection_bytes"), before + 1000);
  Pause(500);
  std::cout << "resident before, during and after 500 connections: " << resident_before << ", " << resident_during << ", "
            << ResidentKiB() << " KiB\n";
}

}  // namespace
}  // namespace legoai::server
