#include "server/http/http_server.h"

#include <arpa/inet.h>
#include <event2/http.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <limits>
#include <list>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/errors.h"
#include "proto/json/json.h"
#include "proto/status.h"
#include "server/http/connections.h"
#include "server/http/credentials.h"
#include "server/http/exchange.h"
#include "server/http/request_head.h"
#include "server/http/static_files.h"
#include "server/http/streams.h"
#include "server/http/transcoder.h"
#include "server/metrics/log.h"
#include "server/rpc/admission.h"
#include "server/rpc/job_watch.h"

namespace legoai::server {
namespace {

using google::protobuf::Message;
using google::protobuf::MethodDescriptor;

constexpr std::string_view kClusters = "/catalog/clusters/";
// A client that asks so gets 204 instead of 404 for what a job does not have: a browser takes every 404 for a fault of the page.
constexpr std::string_view kAbsentIsEmpty = "absent=204";
const char* const kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

class Server : public HttpServer {
 public:
  Server(const HttpOptions& options, Handlers handlers, ThreadPool* pool, Notifier* notifier, Metrics* metrics,
         Transcoder transcoder, StaticFiles files)
      : options_(options),
        handlers_(std::move(handlers)),
        notifier_(notifier),
        metrics_(metrics),
        transcoder_(std::move(transcoder)),
        files_(std::move(files)),
        guard_(options.address, options.host_names),
        places_(std::make_shared<ClientQuota>(options.max_streams, options.max_streams_per_client, "streams of events")),
        watches_{.poll = handlers_.poll_job,
                 .notifier = notifier,
                 .post = [this](auto work, auto after) { polls_.Post(std::move(work), after); }},
        calls_(pool, options.calls_running, options.max_waiting),
        slow_calls_(pool, options.slow_running, options.max_waiting),
        polls_(pool, options.polls_running, std::numeric_limits<size_t>::max()) {}  // a watch has at most one poll waiting
  ~Server() override;

  absl::Status Listen();
  int port() const override { return port_; }

 private:
  using Shared = std::shared_ptr<Exchange>;

  static void OnRequest(evhttp_request* request, void* self) { static_cast<Server*>(self)->Receive(request); }
  static void OnClosed(evhttp_connection* connection, void* self) { static_cast<Server*>(self)->Closed(connection); }
  static void OnTick(evutil_socket_t, short, void* self) { static_cast<Server*>(self)->Tick(); }

  void Receive(evhttp_request* request);
  void Closed(evhttp_connection* connection);
  void Tick();
  void OnEnd(const Exchange::Summary& summary);
  std::string RefusalBody(int code, const std::string& remote, const absl::Status& why);

  void Route(const Shared& exchange);
  std::optional<access::Identity> Identify(const Shared& exchange, const std::string& call);
  Caller CallerOf(const Exchange& exchange, const access::Identity& who) const {
    return {"http", exchange.remote(), who, options_.gate};
  }
  void Session(const Shared& exchange);
  void CallMethod(const Shared& exchange);
  absl::StatusOr<Transcoder::Call> ReadCall(const Exchange& exchange, const access::Identity& who, const std::string& body) const;
  void CallUnary(const Shared& exchange, const access::Identity& who, const MethodDescriptor* method);
  void StreamPlan(const Shared& exchange, const access::Identity& who, const MethodDescriptor* method);
  void WatchJob(const Shared& exchange, const access::Identity& who);
  void StreamChanges(const Shared& exchange, const access::Identity& who);
  PassedCall PassedBy(const Shared& exchange);
  absl::Status Answer(const PassedCall& passed, const Transcoder::Call& call, Message* response) const;
  void ReplyReady(const Shared& exchange);
  std::string ConnectionMetrics() const;
  void ReplyMetrics(const Shared& exchange);
  void ReplyCluster(const Shared& exchange);
  void ReplyFile(const Shared& exchange);
  void Submit(const Shared& exchange, bool slow, std::function<void()> work);
  std::shared_ptr<void> TakePlace(const Shared& exchange);
  Handlers::Cancelled CancelledBy(const Shared& exchange) {
    return [this, exchange] { return exchange->gone() || stopping_; };
  }
  // Onto the loop, from a pool's thread.
  void PostError(const Shared& exchange, absl::Status status);

  const HttpOptions options_;
  const Handlers handlers_;
  Notifier* const notifier_;
  Metrics* const metrics_;
  const Transcoder transcoder_;
  const StaticFiles files_;
  const RequestGuard guard_;
  int port_ = 0;
  std::atomic<bool> stopping_{false};
  EventLoop loop_;
  evhttp* http_ = nullptr;
  event* tick_ = nullptr;
  std::unique_ptr<Connections> all_connections_;
  std::map<evhttp_connection*, Shared> connections_;  // that have asked something, with what they asked last
  struct Open {
    std::shared_ptr<EventStream> stream;
    std::shared_ptr<void> place;
    access::Identity who;
  };
  std::list<Open> streams_;
  const std::shared_ptr<ClientQuota> places_;  // of streams
  const JobWatchSource watches_;
  WorkQueue calls_, slow_calls_, polls_;
};

void ReplyError(Exchange& exchange, const absl::Status& status, int code, const Exchange::Headers& headers = {}) {
  exchange.ReplyJson(code, ErrorJson(status, code), headers);
}

// Of a request that may change something. Errors: PermissionDenied where a page of another site sends it; InvalidArgument for
// what is no JSON.
absl::Status CheckSender(const Exchange& exchange, const RequestGuard& guard) {
  RETURN_IF_ERROR(guard.CheckOrigin(exchange.Header("Origin"), exchange.Header("Host")));
  return guard.CheckContentType(exchange.Header("Content-Type"));
}

void ReplySenderError(Exchange& exchange, const absl::Status& status) {
  ReplyError(exchange, status, absl::IsPermissionDenied(status) ? 403 : 415);
}

// As a file for ui.perfetto.dev, or for the page, which unpacks it itself: a Content-Encoding would leave the reader without one.
void ReplyTrace(Exchange& exchange, const v1::TraceFile& file) {
  exchange.Reply(200, "application/gzip", file.trace_gzip(),
                 {{"Content-Disposition", absl::StrCat("attachment; filename=\"", file.file_name(), "\"")}});
}

// The name of what a message with one oneof holds: "progress", "result".
std::string EventName(const Message& message) {
  const auto* oneof = message.GetDescriptor()->oneof_decl(0);
  const auto* field = message.GetReflection()->GetOneofFieldDescriptor(message, oneof);
  return field ? field->name() : "nothing";
}

absl::Status BindError(const HttpOptions& options, int error) {
  const std::string value = absl::StrCat(options.address, ":", options.port);
  if (error == EADDRINUSE) return FieldError("--http", value, "is in use by another process: end that one, or give another port");
  return FieldError("--http", value,
                    absl::StrCat("cannot be listened on (", strerror(error), "): give an address of this machine"));
}

Server::~Server() {
  stopping_ = true;
  // They stay: the loop still takes requests, and asks them.
  for (WorkQueue* queue : {&slow_calls_, &calls_, &polls_}) queue->Stop();
  loop_.Post([this] {
    for (const auto& [connection, exchange] : connections_) exchange->EndEvents();
  });
  if (http_) loop_.Stop();
  streams_.clear();
  if (tick_) event_free(tick_);
  if (http_) evhttp_free(http_);
}

absl::Status Server::Listen() {
  // A client that has left is an error of the write, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  http_ = evhttp_new(loop_.base());
  evhttp_set_max_body_size(http_, options_.max_body_bytes);
  evhttp_set_max_headers_size(http_, options_.max_header_bytes);
  evhttp_set_timeout(http_, 60);
  // A body that is too large is read to its end, and dropped: a client that still writes would not see the answer.
  evhttp_set_flags(http_, EVHTTP_SERVER_LINGERING_CLOSE);
  // All, those that libevent has no name for too: what is not taken is said by Route.
  evhttp_set_allowed_methods(http_, 0xffff);
  evhttp_set_gencb(http_, &OnRequest, this);
  evhttp_bound_socket* bound =
      evhttp_bind_socket_with_handle(http_, options_.address.c_str(), static_cast<ev_uint16_t>(options_.port));
  if (!bound) {
    const int error = errno;
    evhttp_free(std::exchange(http_, nullptr));
    return BindError(options_, error);
  }
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  getsockname(evhttp_bound_socket_get_fd(bound), reinterpret_cast<sockaddr*>(&address), &size);
  // The port is at the same place in both families.
  port_ = ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
  const ConnectionLimits limits = {
      static_cast<size_t>(options_.max_connections), static_cast<size_t>(options_.max_connections_per_client),
      static_cast<size_t>(options_.max_header_bytes), options_.header_seconds, options_.body_seconds};
  all_connections_ = std::make_unique<Connections>(
      &loop_, http_, evhttp_bound_socket_get_listener(bound), limits,
      [this](int code, const std::string& remote, const absl::Status& why) { return RefusalBody(code, remote, why); },
      options_.tls);
  tick_ = event_new(loop_.base(), -1, EV_PERSIST, &OnTick, this);
  const timeval fifth = {0, 200'000};
  event_add(tick_, &fifth);
  loop_.Start();
  return absl::OkStatus();
}

void Server::Receive(evhttp_request* request) {
  evhttp_connection* connection = evhttp_request_get_connection(request);
  evhttp_connection_set_closecb(connection, &OnClosed, this);
  auto exchange = std::make_shared<Exchange>(&loop_, request, [this](const Exchange::Summary& summary) { OnEnd(summary); });
  connections_[connection] = exchange;
  if (absl::Status status = all_connections_->Begin(request); !status.ok())
    return ReplyError(*exchange, status, 400, {{"Connection", "close"}});
  Route(exchange);
}

void Server::Closed(evhttp_connection* connection) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  const Shared exchange = std::move(found->second);
  connections_.erase(found);
  exchange->OnConnectionClosed();
}

void Server::Tick() {
  all_connections_->Sweep();
  if (options_.tls != nullptr) options_.tls->Refresh();
  for (auto it = streams_.begin(); it != streams_.end();) {
    EventStream& stream = *it->stream;
    if (!stream.over() && options_.gate != nullptr && !options_.gate->Holds(it->who)) stream.Refuse(access::NoLongerHeld());
    if (!stream.over()) stream.Tick();
    if (!stream.over()) stream.KeepAlive(options_.keep_alive_seconds);
    if (stream.over()) {
      it = streams_.erase(it);
    } else {
      ++it;
    }
  }
}

void Server::OnEnd(const Exchange::Summary& s) {
  if (!s.was_stream) metrics_->HttpRequest(s.method, s.code, s.seconds);
  LogInfo("http", {},
          {{"method", s.method},
           {"path", s.path},
           {"code", int64_t{s.code}},
           {"seconds", s.seconds},
           {"bytes", s.bytes},
           {"remote", s.remote}});
}

// Of a request that never became one.
std::string Server::RefusalBody(int code, const std::string& remote, const absl::Status& why) {
  OnEnd({"", "", remote, code, 0, 0, false});
  if (!why.ok()) return absl::StrCat(ErrorJson(why, code), "\n");
  const std::string sizes = absl::StrCat("the request line and headers may have ", options_.max_header_bytes, " bytes, the body ",
                                         options_.max_body_bytes);
  const std::string remedy = absl::StrCat(code == 413 ? "is too large: " : "cannot be read: it must be HTTP/1.1; ", sizes);
  return absl::StrCat(ErrorJson(FieldError("request", "", remedy), code), "\n");
}

void Server::Route(const Shared& exchange) {
  const std::string& path = exchange->path();
  const bool reads = exchange->method() == "GET" || exchange->method() == "HEAD";
  if (absl::Status status = guard_.CheckHost(exchange->Header("Host")); !status.ok()) return ReplyError(*exchange, status, 403);
  if (path == "/v1" || (path.starts_with("/v1/") && path != "/v1/events")) return CallMethod(exchange);
  if (path == "/session") return Session(exchange);
  if (!reads) {
    return ReplyError(*exchange, absl::UnimplementedError(absl::StrCat(path, " takes GET, not ", exchange->method())), 405,
                      {{"Allow", "GET, HEAD"}});
  }
  if (path == "/v1/events" || path == "/metrics") {
    const auto who = Identify(exchange, path);
    if (who) path == "/metrics" ? ReplyMetrics(exchange) : StreamChanges(exchange, *who);
    return;
  }
  if (path == "/healthz") return exchange->Reply(200, "text/plain; charset=utf-8", "ok\n");
  if (path == "/readyz") return ReplyReady(exchange);
  if (path == "/catalog.json") return exchange->ReplyJson(200, CatalogJson());
  if (path.starts_with(kClusters)) return ReplyCluster(exchange);
  ReplyFile(exchange);
}

// Who makes this call (as in server/access/rights.h); nothing: they may not, which is answered. Of a method, whether they may is
// found out once its request is read.
std::optional<access::Identity> Server::Identify(const Shared& exchange, const std::string& call) {
  const std::string secret = SecretOf(exchange->Header("Authorization"), exchange->Header("Cookie"));
  auto who = access::Enter(options_.gate, secret, ClientOf(exchange->remote()), call);
  absl::Status status = who.status();
  if (status.ok() && access::HasRow(call) && call.starts_with('/')) {
    status = access::CheckRight(*who, call, nullptr);
    if (!status.ok() && options_.gate != nullptr) options_.gate->Record(*who, exchange->remote(), call, "", status);
  }
  if (status.ok()) return *std::move(who);
  Exchange::Headers headers;
  if (absl::IsUnauthenticated(status)) headers.emplace_back("WWW-Authenticate", "Bearer");
  if (absl::IsResourceExhausted(status)) headers.emplace_back("Retry-After", "5");
  ReplyError(*exchange, status, HttpCode(status.code()), headers);
  return std::nullopt;
}

// GET: who the browser is signed in as. POST: signs it in or out.
void Server::Session(const Shared& exchange) {
  if (exchange->method() == "GET") {
    const auto who = Identify(exchange, "/session");
    if (who) exchange->ReplyJson(200, IdentityJson(*who));
    return;
  }
  if (exchange->method() != "POST") {
    return ReplyError(*exchange, absl::UnimplementedError(absl::StrCat("/session takes POST, not ", exchange->method())), 405,
                      {{"Allow", "GET, POST"}});
  }
  if (absl::Status status = CheckSender(*exchange, guard_); !status.ok()) return ReplySenderError(*exchange, status);
  const auto secret = ReadSignIn(exchange->TakeBody());
  if (!secret.ok()) return ReplyError(*exchange, secret.status(), 400);
  // A server that asks nobody has no use for a secret, and looks at none.
  if (secret->empty() || options_.gate == nullptr)
    return exchange->ReplyJson(200, "{}", {{"Set-Cookie", SessionCookie("", 0, options_.tls != nullptr)}});
  const auto who = access::Enter(options_.gate, *secret, ClientOf(exchange->remote()), "/session");
  if (!who.ok()) return ReplyError(*exchange, who.status(), HttpCode(who.status().code()));
  const int64_t seconds = std::max<int64_t>(1, (who->expire_time_us - absl::ToUnixMicros(absl::Now())) / 1'000'000);
  const std::string cookie = SessionCookie(*secret, seconds, options_.tls != nullptr);
  absl::Status status;
  if (cookie.size() > kMostCookieBytes) {
    status = FieldError("token", "",
                        "is longer than a browser keeps, which is 4 KiB: have the identity provider put less into it, or take "
                        "one that `lego token create` made");
  }
  options_.gate->Record(*who, exchange->remote(), "/session", "", status);
  if (!status.ok()) return ReplyError(*exchange, status, 400);
  exchange->ReplyJson(200, IdentityJson(*who), {{"Set-Cookie", cookie}});
}

void Server::CallMethod(const Shared& exchange) {
  const auto method = transcoder_.Find(exchange->method(), exchange->path());
  if (!method.ok()) {
    const std::string others = transcoder_.MethodsOf(exchange->path());
    if (others.empty()) return ReplyError(*exchange, method.status(), 404);
    return ReplyError(*exchange, method.status(), 405, {{"Allow", others}});
  }
  if (exchange->method() != "GET") {
    if (absl::Status status = CheckSender(*exchange, guard_); !status.ok()) return ReplySenderError(*exchange, status);
  }
  const auto who = Identify(exchange, absl::StrCat((*method)->service()->full_name(), "/", (*method)->name()));
  if (!who) return;
  if ((*method)->name() == "WatchJob") return WatchJob(exchange, *who);
  if ((*method)->server_streaming()) return StreamPlan(exchange, *who, *method);
  CallUnary(exchange, *who, *method);
}

void Server::Submit(const Shared& exchange, bool slow, std::function<void()> work) {
  if ((slow ? slow_calls_ : calls_).Post(std::move(work))) return;
  ReplyError(*exchange, absl::ResourceExhaustedError("the server has as many calls as it can hold: try again in a few seconds"),
             503, {{"Retry-After", "5"}});
}

void Server::PostError(const Shared& exchange, absl::Status status) {
  loop_.Post([exchange, status] {
    const int code = HttpCode(status.code());
    if (!exchange->streaming()) return ReplyError(*exchange, status, code);
    exchange->SendEvent("failure", "", ErrorJson(status, code));
    exchange->EndEvents();
  });
}

// Every call of a method passes here.
absl::StatusOr<Transcoder::Call> Server::ReadCall(const Exchange& exchange, const access::Identity& who,
                                                  const std::string& body) const {
  auto call = transcoder_.Transcode(exchange.method(), exchange.path(), exchange.query(), body);
  if (!call.ok()) return call;
  if (absl::Status status = AdmitCall(CallerOf(exchange, who), call->method->name(), *call->request); !status.ok())
    return status;
  return call;
}

void Server::CallUnary(const Shared& exchange, const access::Identity& who, const MethodDescriptor* method) {
  const bool slow = handlers_.slow.count(method->name()) > 0;
  if (slow) exchange->WatchForEnd();
  const bool absent_is_empty = exchange->method() == "GET" && exchange->Header("Prefer") == kAbsentIsEmpty;
  Submit(exchange, slow,
         [this, exchange, who, method, absent_is_empty, passed = PassedBy(exchange), body = exchange->TakeBody()] {
    auto call = ReadCall(*exchange, who, body);
    if (!call.ok()) return PostError(exchange, call.status());
    const std::unique_ptr<Message> response(
        google::protobuf::MessageFactory::generated_factory()->GetPrototype(method->output_type())->New());
    const absl::Status status = Answer(passed, *call, response.get());
    AuditCall(CallerOf(*exchange, who), method->name(), *call->request, status);
    if (absl::IsNotFound(status) && absent_is_empty) return loop_.Post([exchange] { exchange->Reply(204, "", ""); });
    if (!status.ok()) return PostError(exchange, status);
    access::HideOthers(who, response.get());
    if (const auto* file = google::protobuf::DynamicCastToGenerated<const v1::TraceFile>(response.get()))
      return loop_.Post([exchange, file = *file] { ReplyTrace(*exchange, file); });
    loop_.Post([exchange, json = ToJson(*response, -1)] { exchange->ReplyJson(200, json); });
  });
}

PassedCall Server::PassedBy(const Shared& exchange) {
  // The page's cookie becomes what other servers understand.
  const std::string secret = SecretOf(exchange->Header("Authorization"), exchange->Header("Cookie"));
  return {.authorization = secret.empty() ? "" : absl::StrCat("Bearer ", secret),
          .passed_on = !exchange->Header(kPassedOn).empty(),
          .cancelled = CancelledBy(exchange)};
}

absl::Status Server::Answer(const PassedCall& passed, const Transcoder::Call& call, Message* response) const {
  const std::string& method = call.method->name();
  if (handlers_.leader != nullptr) {
    if (auto status = handlers_.leader->PassOn(method, passed, *call.request, response)) return *std::move(status);
  }
  return handlers_.unary.at(method)(*call.request, passed.cancelled, response);
}

// Asked often, and answered from memory.
void Server::ReplyReady(const Shared& exchange) {
  const absl::StatusOr<std::string> ready = handlers_.ready ? handlers_.ready() : absl::StatusOr<std::string>("ok");
  if (!ready.ok()) return ReplyError(*exchange, ready.status(), 503);
  exchange->Reply(200, "text/plain; charset=utf-8", *ready + "\n");
}

// Given back when nobody holds it any more. Null: there is none, which is answered.
std::shared_ptr<void> Server::TakePlace(const Shared& exchange) {
  const std::string client = ClientOf(exchange->remote());
  const auto answer = places_->Take(client);
  if (answer == ClientQuota::Answer::kTaken) {
    metrics_->HttpStreams(1);
    return {places_.get(), [places = places_, metrics = metrics_, client](void*) {
              metrics->HttpStreams(-1);
              places->GiveBack(client);
            }};
  }
  ReplyError(*exchange, absl::ResourceExhaustedError(places_->Refusal(answer, client)),
             answer == ClientQuota::Answer::kClientIsFull ? 429 : 503, {{"Retry-After", "15"}});
  return nullptr;
}

void Server::WatchJob(const Shared& exchange, const access::Identity& who) {
  auto place = TakePlace(exchange);
  if (!place) return;
  auto call = ReadCall(*exchange, who, "");
  if (!call.ok()) return ReplyError(*exchange, call.status(), HttpCode(call.status().code()));
  v1::WatchJobRequest request;
  request.CopyFrom(*call->request);
  if (const std::string last = exchange->Header("Last-Event-ID"); !last.empty()) {
    if (absl::Status status = MergeText("after_version", last, &request); !status.ok()) return ReplyError(*exchange, status, 400);
  }
  auto stream = std::make_shared<WatchStream>(&loop_, &watches_, exchange, request);
  streams_.push_back({stream, std::move(place), who});
  stream->Start();
}

void Server::StreamChanges(const Shared& exchange, const access::Identity& who) {
  auto place = TakePlace(exchange);
  if (!place) return;
  auto stream = std::make_shared<ChangesStream>(exchange, who);
  streams_.push_back({stream, std::move(place), who});
  stream->Start(notifier_);
}

// The method's stream as events, each named by what its message holds: "progress", "result".
void Server::StreamPlan(const Shared& exchange, const access::Identity& who, const MethodDescriptor* method) {
  const std::shared_ptr<void> place = TakePlace(exchange);  // given back when the work is done, or dropped
  if (!place) return;
  exchange->WatchForEnd();
  Submit(exchange, true, [this, exchange, who, method, place, passed = PassedBy(exchange), body = exchange->TakeBody()] {
    auto call = ReadCall(*exchange, who, body);
    if (!call.ok()) return PostError(exchange, call.status());
    const auto send = [this, exchange](const Message& message) {
      loop_.Post([exchange, name = EventName(message), json = ToJson(message, -1)] {
        // Progress is left out for a client that has not taken what it was sent before.
        if (exchange->streaming() && name == "progress" && exchange->PendingBytes() > 0) return;
        if (!exchange->streaming()) exchange->StartEvents();
        exchange->SendEvent(name, "", json);
      });
      return !exchange->gone();
    };
    std::optional<absl::Status> status;
    const auto* plan = google::protobuf::DynamicCastToGenerated<const v1::PlanRequest>(call->request.get());
    if (handlers_.leader != nullptr && plan != nullptr) status = handlers_.leader->PassOnPlan(passed, *plan, send);
    if (!status) status = handlers_.streams.at(method->name())(*call->request, send, passed.cancelled);
    AuditCall(CallerOf(*exchange, who), method->name(), *call->request, *status);
    if (!status->ok()) return PostError(exchange, *status);
    loop_.Post([exchange] { exchange->EndEvents(); });
  });
}

// Beside what Metrics counts: how it stands on the loop's thread just now.
std::string Server::ConnectionMetrics() const {
  return absl::StrCat(
      "# HELP legoai_http_connections Open HTTP connections.\n# TYPE legoai_http_connections gauge\n", "legoai_http_connections ",
      all_connections_->open(), "\n# HELP legoai_http_connection_bytes Bytes that wait in buffers of HTTP connections.\n",
      "# TYPE legoai_http_connection_bytes gauge\nlegoai_http_connection_bytes ", all_connections_->held_bytes(), "\n");
}

void Server::ReplyMetrics(const Shared& exchange) {
  Submit(exchange, false, [this, exchange, own = ConnectionMetrics()] {
    if (handlers_.before_scrape) handlers_.before_scrape();
    loop_.Post([exchange, text = metrics_->Text() + own] { exchange->Reply(200, kMetricsType, text); });
  });
}

void Server::ReplyCluster(const Shared& exchange) {
  const auto json = ClusterJson(exchange->path().substr(kClusters.size()));
  if (!json.ok()) return ReplyError(*exchange, json.status(), HttpCode(json.status().code()));
  exchange->ReplyJson(200, *json);
}

void Server::ReplyFile(const Shared& exchange) {
  const StaticFile* file = files_.Find(exchange->path());
  if (!file) {
    const std::string why = files_.empty() ? ": the server was started without a page (--web)" : "";
    return ReplyError(*exchange, absl::NotFoundError(absl::StrCat("there is no ", exchange->path(), why)), 404);
  }
  const Exchange::Headers headers = {{"ETag", file->etag}, {"Cache-Control", file->cache_control}};
  if (exchange->Header("If-None-Match") == file->etag) return exchange->Reply(304, "", "", headers);
  exchange->Reply(200, file->type, file->content, headers);
}

absl::Status CheckHandlers(const google::protobuf::ServiceDescriptor* service, const Handlers& handlers) {
  for (int i = 0; i < service->method_count(); ++i) {
    const std::string& name = service->method(i)->name();
    const bool known =
        name == "WatchJob" ? handlers.poll_job != nullptr : handlers.unary.count(name) || handlers.streams.count(name);
    if (!known) return absl::InternalError(absl::StrCat("no handler for ", service->method(i)->full_name()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options, Handlers handlers, ThreadPool* pool,
                                                              Notifier* notifier, Metrics* metrics) {
  const auto* service = v1::Job::descriptor()->file()->pool()->FindServiceByName("legoai.v1.ControlPlane");
  RETURN_IF_ERROR(CheckHandlers(service, handlers));
  ASSIGN_OR_RETURN(auto transcoder, Transcoder::Create(service));
  StaticFiles files;
  if (!options.web_directory.empty()) {
    ASSIGN_OR_RETURN(files, StaticFiles::Load(options.web_directory));
  }
  auto server =
      std::make_unique<Server>(options, std::move(handlers), pool, notifier, metrics, std::move(transcoder), std::move(files));
  RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace legoai::server
