// One HTTP request and its answer: a complete one, or a stream of server-sent events. On the loop's thread, except gone() and
// what never changes (method, path, query, remote), which any thread may call.
#pragma once

#include <event2/http.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/http/connections.h"

namespace legoai::server {

class Exchange {
 public:
  using Headers = std::vector<std::pair<std::string, std::string>>;

  struct Summary {
    std::string method, path, remote;
    int code;
    int64_t bytes;  // of the answer's body
    double seconds;
    bool was_stream;
  };

  // `on_end` is called once: when the answer is sent, the stream has ended, or the client has left (code 499).
  Exchange(EventLoop* loop, evhttp_request* request, std::function<void(const Summary&)> on_end);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const std::string& method() const { return method_; }  // "GET"
  const std::string& path() const { return path_; }      // as in the request line, not decoded
  const std::string& query() const { return query_; }
  const std::string& remote() const { return remote_; }  // "127.0.0.1:40000"
  std::string Header(const char* name) const;            // empty: absent
  std::string TakeBody();

  // Sends the answer, with the headers that every answer has. Only once.
  void Reply(int code, const std::string& type, const std::string& body, const Headers& headers = {});
  void ReplyJson(int code, const std::string& json, const Headers& headers = {});

  // Server-sent events. `id` may be empty; `data` is one line.
  void StartEvents();
  bool streaming() const { return streaming_; }
  void SendEvent(const std::string& event, const std::string& id, const std::string& data);
  void SendComment();
  void EndEvents();             // does nothing if none were started
  size_t PendingBytes() const;  // written, and not taken by the socket yet

  // From now on gone() is true as soon as the client has closed its end; otherwise that shows only when something is written.
  void WatchForEnd();
  bool gone() const { return gone_; }

  // The connection is closed, for whatever reason. Only for the server's callback.
  void OnConnectionClosed();

 private:
  static void OnReadable(evutil_socket_t fd, short, void* self);
  void AddCommonHeaders(const Headers& headers);
  void Write(const std::string& text);
  void End(int code);
  bufferevent* Io() const;  // of a request that is there

  EventLoop* const loop_;
  evhttp_request* request_;  // null after the answer, and when the client has left
  const std::function<void(const Summary&)> on_end_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::string method_, path_, query_, remote_;
  int64_t bytes_ = 0;
  bool streaming_ = false, ended_ = false;
  event* readable_ = nullptr;
  std::atomic<bool> gone_{false};
};

// Errors as the answer of an HTTP request: {"error": {"code", "status", "message", "details": [{"field", "value", "remedy"}]}}.
// Thread-safety: pure functions.

// The HTTP status for a google.rpc code: 400 for INVALID_ARGUMENT, 404 for NOT_FOUND and so on; 200 for OK.
int HttpCode(absl::StatusCode code);

// The JSON of an error. `http_code` is the status of the answer, which may be more precise than the code: 413, 415.
std::string ErrorJson(const absl::Status& status, int http_code);

}  // namespace legoai::server
