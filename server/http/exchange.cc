#include "server/http/exchange.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "proto/errors.h"

namespace legoai::server {
namespace {

const char* MethodText(evhttp_cmd_type type) {
  switch (type) {
    case EVHTTP_REQ_GET: return "GET";
    case EVHTTP_REQ_HEAD: return "HEAD";
    case EVHTTP_REQ_POST: return "POST";
    case EVHTTP_REQ_PUT: return "PUT";
    case EVHTTP_REQ_DELETE: return "DELETE";
    case EVHTTP_REQ_OPTIONS: return "OPTIONS";
    case EVHTTP_REQ_TRACE: return "TRACE";
    case EVHTTP_REQ_CONNECT: return "CONNECT";
    case EVHTTP_REQ_PATCH: return "PATCH";
  }
  return "other";
}

std::string Text(const char* text) { return text ? text : ""; }

// What there is to read on a connection. With TLS its own records may come, which are nothing for us.
enum class Sight { kMore, kEnd, kNothing };

Sight Look(SSL* ssl, evutil_socket_t fd) {
  char byte;
  if (ssl == nullptr) return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0 ? Sight::kMore : Sight::kEnd;
  const int got = SSL_peek(ssl, &byte, 1);
  const int error = got > 0 ? SSL_ERROR_NONE : SSL_get_error(ssl, got);
  ERR_clear_error();
  if (got > 0) return Sight::kMore;
  return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? Sight::kNothing : Sight::kEnd;
}

}  // namespace

Exchange::Exchange(EventLoop* loop, evhttp_request* request, std::function<void(const Summary&)> on_end)
    : loop_(loop), request_(request), on_end_(std::move(on_end)), method_(MethodText(evhttp_request_get_command(request))) {
  // CONNECT names no place of the server, so there is none.
  if (const evhttp_uri* uri = evhttp_request_get_evhttp_uri(request)) {
    path_ = Text(evhttp_uri_get_path(uri));
    query_ = Text(evhttp_uri_get_query(uri));
  }
  char* address = nullptr;
  ev_uint16_t port = 0;
  evhttp_connection_get_peer(evhttp_request_get_connection(request), &address, &port);
  remote_ = absl::StrCat(Text(address), ":", port);
}

Exchange::~Exchange() {
  if (readable_) event_free(readable_);
}

std::string Exchange::Header(const char* name) const {
  return request_ ? Text(evhttp_find_header(evhttp_request_get_input_headers(request_), name)) : "";
}

std::string Exchange::TakeBody() {
  if (!request_) return "";
  evbuffer* input = evhttp_request_get_input_buffer(request_);
  std::string body(evbuffer_get_length(input), '\0');
  evbuffer_remove(input, body.data(), body.size());
  return body;
}

void Exchange::AddCommonHeaders(const Headers& headers) {
  evkeyvalq* out = evhttp_request_get_output_headers(request_);
  evhttp_add_header(out, "X-Content-Type-Options", "nosniff");
  evhttp_add_header(out, "Referrer-Policy", "no-referrer");
  evhttp_add_header(out, "X-Frame-Options", "DENY");
  evhttp_add_header(out, "Cross-Origin-Resource-Policy", "same-origin");
  evhttp_add_header(out, "Content-Security-Policy",
                    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'");
  bool caching = false;
  for (const auto& [name, value] : headers) {
    evhttp_add_header(out, name.c_str(), value.c_str());
    caching = caching || name == "Cache-Control";
  }
  if (!caching) evhttp_add_header(out, "Cache-Control", "no-store");
}

void Exchange::Reply(int code, const std::string& type, const std::string& body, const Headers& headers) {
  if (!request_) return;
  AddCommonHeaders(headers);
  if (!type.empty()) evhttp_add_header(evhttp_request_get_output_headers(request_), "Content-Type", std::string(type).c_str());
  evbuffer* out = evbuffer_new();
  if (method_ == "HEAD") {
    evhttp_add_header(evhttp_request_get_output_headers(request_), "Content-Length", std::to_string(body.size()).c_str());
  } else {
    evbuffer_add(out, body.data(), body.size());
    bytes_ = static_cast<int64_t>(body.size());
  }
  evhttp_request* request = std::exchange(request_, nullptr);
  evhttp_send_reply(request, code, nullptr, out);
  evbuffer_free(out);
  End(code);
}

void Exchange::ReplyJson(int code, const std::string& json, const Headers& headers) {
  Reply(code, "application/json", absl::StrCat(json, "\n"), headers);
}

void Exchange::StartEvents() {
  if (!request_) return;
  streaming_ = true;
  AddCommonHeaders({});
  evhttp_add_header(evhttp_request_get_output_headers(request_), "Content-Type", "text/event-stream");
  evhttp_send_reply_start(request_, 200, nullptr);
  WatchForEnd();
}

void Exchange::SendEvent(const std::string& event, const std::string& id, const std::string& data) {
  std::string text = id.empty() ? "" : absl::StrCat("id: ", id, "\n");
  absl::StrAppend(&text, "event: ", event, "\ndata: ", data, "\n\n");
  Write(text);
}

void Exchange::SendComment() { Write(": keep-alive\n\n"); }

void Exchange::Write(const std::string& text) {
  if (!request_) return;
  evbuffer* chunk = evbuffer_new();
  evbuffer_add(chunk, text.data(), text.size());
  bytes_ += static_cast<int64_t>(text.size());
  evhttp_send_reply_chunk(request_, chunk);
  evbuffer_free(chunk);
}

void Exchange::EndEvents() {
  if (!request_ || !streaming_) return;
  if (readable_) event_free(std::exchange(readable_, nullptr));
  evhttp_send_reply_end(std::exchange(request_, nullptr));
  End(200);
}

bufferevent* Exchange::Io() const { return evhttp_connection_get_bufferevent(evhttp_request_get_connection(request_)); }

size_t Exchange::PendingBytes() const { return request_ ? evbuffer_get_length(bufferevent_get_output(Io())) : 0; }

void Exchange::WatchForEnd() {
  if (!request_ || readable_) return;
  // While an answer is due libevent reads nothing of the connection, so this event has the socket's readability for itself.
  const evutil_socket_t fd = bufferevent_getfd(Io());
  readable_ = event_new(loop_->base(), fd, EV_READ, &OnReadable, this);
  event_add(readable_, nullptr);
}

void Exchange::OnReadable(evutil_socket_t fd, short, void* self) {
  Exchange* exchange = static_cast<Exchange*>(self);
  if (!exchange->request_) return;
  // A further request behind a call that still runs is left for later; behind a stream there can be none.
  const Sight sight = Look(bufferevent_openssl_get_ssl(exchange->Io()), fd);
  if (sight == Sight::kNothing) event_add(exchange->readable_, nullptr);
  if (sight == Sight::kNothing || (sight == Sight::kMore && !exchange->streaming_)) return;
  evhttp_connection_free(evhttp_request_get_connection(exchange->request_));
}

void Exchange::OnConnectionClosed() {
  gone_ = true;
  if (readable_) event_free(std::exchange(readable_, nullptr));
  evhttp_request* request = std::exchange(request_, nullptr);
  if (!request) return;
  // A request that libevent has parted from its connection is nobody's any more; others it frees itself.
  if (!evhttp_request_get_connection(request)) evhttp_request_free(request);
  End(streaming_ ? 200 : 499);
}

void Exchange::End(int code) {
  if (readable_) event_free(std::exchange(readable_, nullptr));
  if (std::exchange(ended_, true)) return;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  on_end_({method_, path_, remote_, code, bytes_, seconds, streaming_});
}

int HttpCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk: return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange: return 400;
    case absl::StatusCode::kUnauthenticated: return 401;
    case absl::StatusCode::kPermissionDenied: return 403;
    case absl::StatusCode::kNotFound: return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted: return 409;
    case absl::StatusCode::kResourceExhausted: return 429;
    case absl::StatusCode::kCancelled: return 499;
    case absl::StatusCode::kUnimplemented: return 501;
    case absl::StatusCode::kUnavailable: return 503;
    case absl::StatusCode::kDeadlineExceeded: return 504;
    default: return 500;
  }
}

std::string ErrorJson(const absl::Status& status, int http_code) {
  using Json = nlohmann::ordered_json;
  Json error = {{"code", http_code},
                {"status", absl::StatusCodeToString(status.code())},
                {"message", std::string(status.message())},
                {"details", Json::array()}};
  if (const auto violation = GetFieldViolation(status)) {
    error["details"].push_back({{"field", violation->field()}, {"value", violation->value()}, {"remedy", violation->remedy()}});
  }
  return Json{{"error", error}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace legoai::server
