// An HTTP server over handlers that a test chooses, and requests to it.
#pragma once

#include <chrono>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/legoai/v1/control_plane.pb.h"
#include "server/http/http_server.h"
#include "server/http/testing/test_client.h"
#include "server/metrics/log.h"

namespace legoai::server::http_test {

class HttpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SetLogSink([](std::string_view) {});
  }
  void TearDown() override {
    server_.reset();
    SetLogSink(nullptr);
  }
  // Every method but Plan, which is a stream, and WatchJob answers with nothing.
  virtual Handlers MakeHandlers() {
    Handlers handlers;
    const auto* service = v1::Job::descriptor()->file()->pool()->FindServiceByName("legoai.v1.ControlPlane");
    for (int i = 0; i < service->method_count(); ++i)
      handlers.unary[service->method(i)->name()] = [](const auto&, const auto&, auto*) { return absl::OkStatus(); };
    handlers.unary.erase("Plan");
    handlers.streams["Plan"] = [](const auto&, const auto&, const auto&) { return absl::OkStatus(); };
    handlers.slow = {"Plan", "Simulate"};
    handlers.poll_job = [](const v1::WatchJobRequest&, WatchState*) { return std::nullopt; };
    return handlers;
  }
  void Start(const HttpOptions& options = {}) {
    auto started = HttpServer::Start(options, MakeHandlers(), &pool_, &notifier_, &metrics_);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }

  // All that comes back, until the other side closes, over a connection of its own; `from`: as Client has it.
  std::string Ask(const std::string& text, const char* from = nullptr) {
    Client client(server_->port(), from);
    client.Send(text);
    return client.ReadAll();
  }
  // The connection would stay open for more: one that is asked to close shows the end of the answer.
  Answer Call(const std::string& method, const std::string& path, const std::string& body = "", const std::string& headers = "",
              const char* from = nullptr) {
    return Parse(Ask(Request(method, path, body, absl::StrCat(headers, "Connection: close\r\n")), from));
  }
  Answer Get(const std::string& path, const std::string& headers = "") { return Call("GET", path, "", headers); }
  Answer GetFrom(const char* from, const std::string& path) { return Call("GET", path, "", "", from); }
  Answer Post(const std::string& path, const std::string& body, const std::string& type = "application/json") {
    return Call("POST", path, body, absl::StrCat("Content-Type: ", type, "\r\n"));
  }

  // A stream of changes from this address, open for as long as `open` holds it.
  void OpenStream(std::list<Client>* open, const char* from = nullptr) {
    open->emplace_back(server_->port(), from).Send(Request("GET", "/v1/events"));
    open->back().ReadUntil("keep-alive");
  }
  // That a place for one more is free, or becomes so.
  void ExpectPlaceForStream(const char* from = nullptr) {
    for (int i = 0; i < 600; ++i) {
      Client again(server_->port(), from);
      again.Send(Request("GET", "/v1/events"));
      if (again.ReadUntil("\r\n\r\n").starts_with("HTTP/1.1 200")) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    FAIL() << "no place was given back";
  }

  ThreadPool pool_{8};
  Notifier notifier_;
  Metrics metrics_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace legoai::server::http_test
