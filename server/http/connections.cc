#include "server/http/connections.h"

#include <arpa/inet.h>
#include <event2/bufferevent_ssl.h>
#include <event2/thread.h>
#include <malloc.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/http/request_head.h"
#include "server/metrics/log.h"
#include "server/rpc/admission.h"

namespace legoai::server {
namespace {

constexpr size_t kLongestPage = 1024;
// More than the bound for a moment: connections that nobody has looked at yet, or that are just being refused.
constexpr size_t kSpareConnections = 64;
// A burst of fewer is not worth giving its memory back.
constexpr size_t kLeastBurst = 64;

// evhttp tells nobody of a connection that ends before it has asked something. But it sets callbacks with itself as argument as
// long as it has the connection, and bufferevent_free clears them.
bool IsFreed(bufferevent* connection) {
  void* argument = nullptr;
  bufferevent_getcb(connection, nullptr, nullptr, nullptr, &argument);
  return argument == nullptr;
}

// The status of libevent's own page, head and body of which lie in `output`; 0: it is something else. Answers of the server's own
// have a header that libevent knows nothing of. There is one answer at a time on a connection, so it begins where `output` does.
int StatusOfPage(evbuffer* output) {
  const size_t size = evbuffer_get_length(output);
  if (size > kLongestPage) return 0;
  char text[kLongestPage];
  evbuffer_copyout(output, text, size);
  const std::string_view answer(text, size);
  int code = 0;
  if (!answer.starts_with("HTTP/1.") || !answer.ends_with("</HTML>\n")) return 0;
  const bool is_page = absl::SimpleAtoi(std::string(answer.substr(9, 3)), &code) && code >= 400 &&
                       answer.find("\r\n\r\n<HTML>") != std::string_view::npos &&
                       answer.find("X-Content-Type-Options") == std::string_view::npos;
  return is_page ? code : 0;
}

// "127.0.0.1:4711"
std::string PeerOf(evutil_socket_t fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  char text[INET6_ADDRSTRLEN] = "";
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
  const bool is_v6 = address.ss_family == AF_INET6;
  inet_ntop(address.ss_family, is_v6 ? static_cast<const void*>(&v6->sin6_addr) : &v4->sin_addr, text, sizeof(text));
  return absl::StrCat(text, ":", ntohs(is_v6 ? v6->sin6_port : v4->sin_port));
}

std::string AnswerText(const std::string& status_line, const std::string& headers, const std::string& body) {
  return absl::StrCat(status_line, "\r\nContent-Type: application/json\r\nContent-Length: ", body.size(),
                      "\r\nConnection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n", headers, "\r\n",
                      body);
}

const char* StatusLine(int code) {
  switch (code) {
    case 408: return "HTTP/1.1 408 Request Timeout";
    case 429: return "HTTP/1.1 429 Too Many Requests";
    case 503: return "HTTP/1.1 503 Service Unavailable";
    default: return "HTTP/1.1 400 Bad Request";
  }
}

// Around evhttp, of which this is a connection that owes a request: nothing of an answer is under way. What the client still sent
// is taken first, or the system would tell it of a reset rather than of the answer.
void SendLastWord(bufferevent* io, const std::string& answer) {
  char dropped[4096];
  const evutil_socket_t fd = bufferevent_getfd(io);
  if (SSL* const ssl = bufferevent_openssl_get_ssl(io); ssl != nullptr) {
    for (int i = 0; i < 64 && SSL_read(ssl, dropped, sizeof(dropped)) > 0; ++i) {
    }
    if (SSL_is_init_finished(ssl)) SSL_write(ssl, answer.data(), static_cast<int>(answer.size()));
    ERR_clear_error();
    return;
  }
  for (int i = 0; i < 64 && recv(fd, dropped, sizeof(dropped), MSG_DONTWAIT) > 0; ++i) {
  }
  (void)send(fd, answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

absl::Status TooSlow(const char* what, double seconds) {
  return absl::DeadlineExceededError(
      absl::StrCat("the ", what, " of the request took longer than ", seconds, " seconds: send it faster"));
}

bufferevent* MakeConnection(event_base* base, access::ServerTls* tls) {
  if (tls == nullptr) return bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
  SSL* const ssl = tls->NewConnection();
  if (ssl == nullptr) return nullptr;
  bufferevent* io = bufferevent_openssl_socket_new(base, -1, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
  if (io == nullptr) {
    SSL_free(ssl);
    return nullptr;
  }
  // Clients that just hang up lose nothing: lengths say where answers end.
  bufferevent_openssl_set_allow_dirty_shutdown(io, 1);
  return io;
}

void OnLibeventMessage(int severity, const char* message) {
  if (severity >= EVENT_LOG_WARN) LogWarning(message);
}

event_base* MakeBase() {
  static const bool prepared = [] {
    event_set_log_callback(&OnLibeventMessage);
    return evthread_use_pthreads() == 0;
  }();
  return prepared ? event_base_new() : nullptr;
}

}  // namespace

Connections::Connections(EventLoop* loop, evhttp* http, evconnlistener* listener, const ConnectionLimits& limits,
                         ErrorBody error_body, access::ServerTls* tls)
    : loop_(loop), listener_(listener), limits_(limits), error_body_(std::move(error_body)), tls_(tls) {
  evhttp_set_bevcb(http, &OnConnection, this);
}

Connections::~Connections() {
  for (const auto& [io, connection] : all_) bufferevent_decref(io);
}

bufferevent* Connections::OnConnection(event_base* base, void* self) {
  auto* all = static_cast<Connections*>(self);
  bufferevent* io = MakeConnection(base, all->tls_);
  if (!io) return nullptr;
  bufferevent_incref(io);
  auto connection = std::make_unique<Connection>();
  connection->all = all;
  connection->io = io;
  evbuffer_add_cb(bufferevent_get_input(io), &OnInput, connection.get());
  evbuffer_add_cb(bufferevent_get_output(io), &OnOutput, connection.get());
  all->all_.emplace(io, std::move(connection));
  all->peak_ = std::max(all->peak_, all->all_.size());
  // It has no socket yet: evhttp gives it one after this call.
  all->loop_->Post([all] { all->AdmitNew(); });
  if (all->all_.size() >= all->limits_.connections + kSpareConnections) {
    evconnlistener_disable(all->listener_);
    all->resting_ = true;
  }
  return io;
}

void Connections::Enter(Connection& connection, Phase phase) {
  connection.phase = phase;
  connection.since = Clock::now();
}

// Called before evhttp sees the same bytes.
void Connections::OnInput(evbuffer* input, const evbuffer_cb_info* change, void* of) {
  auto& connection = *static_cast<Connection*>(of);
  if (change->n_added == 0 || (connection.phase != Phase::kIdle && connection.phase != Phase::kHead)) return;
  std::string bytes(change->n_added, '\0');
  evbuffer_ptr from;
  evbuffer_ptr_set(input, &from, change->orig_size, EVBUFFER_PTR_SET);
  evbuffer_copyout_from(input, &from, bytes.data(), bytes.size());
  connection.all->TakeBytes(connection, bytes);
}

void Connections::TakeBytes(Connection& connection, std::string_view bytes) {
  if (connection.phase == Phase::kIdle) Enter(connection, Phase::kHead);
  const size_t seen = connection.head.size();
  connection.head.append(bytes);
  // An empty line may have begun before.
  const size_t from = seen < 3 ? 0 : seen - 3;
  const size_t end = EndOfHead(std::string_view(connection.head).substr(from));
  if (end != std::string_view::npos) {
    const absl::Status status = CheckRequestHead(std::string_view(connection.head).substr(0, from + end));
    if (!status.ok()) connection.refusal = status;
  } else if (connection.head.size() > limits_.head_bytes) {
    connection.refusal = absl::OkStatus();
  } else {
    return;
  }
  connection.head = {};
  Enter(connection, Phase::kBody);
  if (connection.refusal) loop_->Post([this] { RefuseBadHeads(); });
}

absl::Status Connections::Begin(evhttp_request* request) {
  const auto found = all_.find(evhttp_connection_get_bufferevent(evhttp_request_get_connection(request)));
  if (found == all_.end()) return absl::InternalError("a request came over a connection that is not known");
  Connection& connection = *found->second;
  evhttp_request_set_on_complete_cb(request, &OnAnswered, this);
  // Where evhttp finds the end of a head that has none, the two read it differently.
  const bool has_end = connection.phase == Phase::kBody;
  const auto refusal = std::exchange(connection.refusal, std::nullopt);
  connection.head = {};
  Enter(connection, Phase::kAnswer);
  if (!has_end || (refusal && refusal->ok()))
    return absl::InvalidArgumentError("the request's headers have no end, or are too long");
  return refusal.value_or(absl::OkStatus());
}

// What came behind the request already is the beginning of the next one.
void Connections::OnAnswered(evhttp_request* request, void* self) {
  auto* all = static_cast<Connections*>(self);
  evhttp_connection* of = evhttp_request_get_connection(request);
  const auto found = of ? all->all_.find(evhttp_connection_get_bufferevent(of)) : all->all_.end();
  if (found == all->all_.end()) return;
  Enter(*found->second, Phase::kIdle);
  evbuffer* input = bufferevent_get_input(found->first);
  std::string bytes(evbuffer_get_length(input), '\0');
  if (bytes.empty()) return;
  evbuffer_copyout(input, bytes.data(), bytes.size());
  all->TakeBytes(*found->second, bytes);
}

void Connections::OnOutput(evbuffer* output, const evbuffer_cb_info* change, void* of) {
  if (change->n_added == 0) return;
  const int code = StatusOfPage(output);
  if (code == 0) return;
  auto& connection = *static_cast<Connection*>(of);
  const absl::Status why = std::exchange(connection.refusal, std::nullopt).value_or(absl::OkStatus());
  Enter(connection, Phase::kAnswer);
  const std::string body = connection.all->error_body_(code, PeerOf(bufferevent_getfd(connection.io)), why);
  // A bufferevent of a socket freezes the front of what it has not begun to write; one of TLS does not, and could then not go on.
  const bool is_frozen = bufferevent_openssl_get_ssl(connection.io) == nullptr;
  if (is_frozen) evbuffer_unfreeze(output, 1);
  char* line = evbuffer_readln(output, nullptr, EVBUFFER_EOL_CRLF_STRICT);
  evbuffer_drain(output, evbuffer_get_length(output));
  if (is_frozen) evbuffer_freeze(output, 1);
  const std::string answer = AnswerText(line, "", body);
  free(line);
  evbuffer_add(output, answer.data(), answer.size());
}

void Connections::AdmitNew() {
  // Refused ones are forgotten as they are looked at: a burst must not make the listener rest.
  std::vector<Connection*> fresh;
  for (const auto& [io, connection] : all_) {
    if (connection->client.empty() && !IsFreed(io)) fresh.push_back(connection.get());
  }
  for (Connection* connection : fresh) {
    if (!IsFreed(connection->io)) Admit(*connection);
  }
  if (!fresh.empty()) Forget();
}

void Connections::Admit(Connection& connection) {
  connection.remote = PeerOf(bufferevent_getfd(connection.io));
  connection.client = connection.remote.empty() ? "gone" : ClientOf(connection.remote);
  size_t count = 0, of_client = 0;
  Connection *oldest = nullptr, *oldest_of_client = nullptr;
  for (const auto& [io, other] : all_) {
    if (other->client.empty() || IsFreed(io)) continue;
    const bool same = other->client == connection.client;
    ++count;
    of_client += same;
    if (other.get() == &connection || other->phase == Phase::kAnswer) continue;
    if (!oldest || other->since < oldest->since) oldest = other.get();
    if (same && (!oldest_of_client || other->since < oldest_of_client->since)) oldest_of_client = other.get();
  }
  const bool client_is_full = of_client > limits_.connections_per_client;
  if (!client_is_full && count <= limits_.connections) return;
  if (Connection* old = client_is_full ? oldest_of_client : oldest)
    return Refuse(*old, 408,
                  absl::DeadlineExceededError("the connection made room for a newer one while its request was awaited"));
  if (client_is_full) {
    return Refuse(
        connection, 429,
        absl::ResourceExhaustedError(absl::StrCat("your address (", connection.client, ") has ", limits_.connections_per_client,
                                                  " connections open, as many as one client may have: close some")));
  }
  Refuse(connection, 503, absl::ResourceExhaustedError("the server has as many connections as it takes: try again later"));
}

// A head that is refused is answered here where evhttp still waits for its body.
void Connections::RefuseBadHeads() {
  for (const auto& [io, connection] : all_) {
    if (connection->refusal && !IsFreed(io)) Refuse(*connection, 400, *std::exchange(connection->refusal, std::nullopt));
  }
  Forget();
}

// Closes it. One that has sent nothing has asked nothing, and is not answered, unless it is refused as it comes.
void Connections::Refuse(Connection& connection, int code, const absl::Status& why) {
  if (code != 408 || connection.phase != Phase::kIdle) {
    const std::string headers = code == 429 || code == 503 ? "Retry-After: 5\r\n" : "";
    const std::string body = error_body_(code, PeerOf(bufferevent_getfd(connection.io)), why);
    SendLastWord(connection.io, AnswerText(StatusLine(code), headers, body));
  }
  void* evhttp_part = nullptr;
  bufferevent_getcb(connection.io, nullptr, nullptr, nullptr, &evhttp_part);
  evhttp_connection_free(static_cast<evhttp_connection*>(evhttp_part));
}

void Connections::CheckTimes() {
  const auto now = Clock::now();
  for (const auto& [io, connection] : all_) {
    if (IsFreed(io)) continue;
    const double seconds = std::chrono::duration<double>(now - connection->since).count();
    if (connection->phase == Phase::kHead && seconds > limits_.head_seconds)
      Refuse(*connection, 408, TooSlow("head", limits_.head_seconds));
    else if (connection->phase == Phase::kBody && seconds > limits_.body_seconds)
      Refuse(*connection, 408, TooSlow("body", limits_.body_seconds));
  }
}

void Connections::Forget() {
  for (auto it = all_.begin(); it != all_.end();) {
    if (!IsFreed(it->first)) {
      ++it;
      continue;
    }
    bufferevent_decref(it->first);
    it = all_.erase(it);
  }
  if (resting_ && all_.size() < limits_.connections + kSpareConnections) {
    resting_ = false;
    evconnlistener_enable(listener_);
  }
}

// The allocator keeps the small blocks that a burst of connections leaves, unless it is asked.
void Connections::ReleaseMemory() {
  if (peak_ < kLeastBurst || all_.size() > peak_ / 4) return;
  malloc_trim(0);
  peak_ = all_.size();
}

void Connections::Sweep() {
  CheckTimes();
  Forget();
  ReleaseMemory();
}

size_t Connections::open() const {
  size_t open = 0;
  for (const auto& [io, connection] : all_) open += !IsFreed(io);
  return open;
}

size_t Connections::held_bytes() const {
  size_t bytes = 0;
  for (const auto& [io, connection] : all_) {
    bytes += connection->head.capacity() + evbuffer_get_length(bufferevent_get_input(io)) +
             evbuffer_get_length(bufferevent_get_output(io));
  }
  return bytes;
}

EventLoop::EventLoop() : base_(MakeBase()), wake_(event_new(base_, -1, EV_PERSIST, &OnWake, this)) {
  // An event that waits for nothing keeps the loop going; Post makes it happen.
  const timeval year = {365 * 24 * 3600, 0};
  event_add(wake_, &year);
}

EventLoop::~EventLoop() {
  event_free(wake_);
  event_base_free(base_);
}

void EventLoop::Start() {
  thread_ = std::thread([this] { event_base_dispatch(base_); });
}

void EventLoop::Stop() {
  const timeval soon = {0, 100'000};
  event_base_loopexit(base_, &soon);
  thread_.join();
  std::deque<std::function<void()>> dropped;  // what they hold may post
  const MutexLock lock(mutex_);
  stopped_ = true;
  dropped.swap(tasks_);
}

void EventLoop::Post(std::function<void()> task) {
  const MutexLock lock(mutex_);
  if (stopped_) return;
  tasks_.push_back(std::move(task));
  event_active(wake_, 0, 0);
}

void EventLoop::OnWake(evutil_socket_t, short, void* self) { static_cast<EventLoop*>(self)->RunTasks(); }

void EventLoop::RunTasks() {
  std::deque<std::function<void()>> tasks;
  {
    const MutexLock lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) task();
}

}  // namespace legoai::server
