#include "core/objectstore/s3_request.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/objectstore/s3_text.h"

namespace legoai::objectstore {
namespace {

constexpr size_t kMostReplyBytes = size_t{64} << 20;
thread_local const AliveDuring* innermost = nullptr;

constexpr long kConnectSeconds = 10;
// A transfer that is slower than this for so long is given up.
constexpr long kSlowBytesPerSecond = 1024, kSlowSeconds = 60, kLongSeconds = 600;

// Of this thread, with its connections. A process that was forked must not use those of its parent, nor end them.
class Handle {
 public:
  ~Handle() {
    if (curl_ != nullptr && process_ == getpid()) curl_easy_cleanup(curl_);
  }
  CURL* Get() {
    if (curl_ != nullptr && process_ == getpid()) return curl_;
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
    curl_ = curl_easy_init();
    process_ = getpid();
    return curl_;
  }

 private:
  CURL* curl_ = nullptr;
  pid_t process_ = 0;
};

using Headers = std::unique_ptr<curl_slist, void (*)(curl_slist*)>;

void Add(Headers* headers, const std::string& line) {
  curl_slist* const longer = curl_slist_append(headers->get(), line.c_str());
  if (longer == nullptr) throw std::bad_alloc();
  headers->release();
  headers->reset(longer);
}

struct Transfer {
  CURL* curl;
  const S3Request& request;
  S3Reply reply;
  bool refused = false;  // more came than was asked for
};

// An error's text is kept, whoever waits for bytes.
bool IsForOut(const Transfer& transfer) {
  long status = 0;
  curl_easy_getinfo(transfer.curl, CURLINFO_RESPONSE_CODE, &status);
  return transfer.request.out != nullptr && status / 100 == 2;
}

size_t Take(char* data, size_t, size_t size, void* context) {
  Transfer& transfer = *static_cast<Transfer*>(context);
  S3Reply& reply = transfer.reply;
  if (IsForOut(transfer)) {
    transfer.refused = static_cast<int64_t>(size) > transfer.request.bytes - reply.got;
    if (transfer.refused) return 0;
    std::memcpy(transfer.request.out + reply.got, data, size);
    reply.got += static_cast<int64_t>(size);
    return size;
  }
  transfer.refused = reply.body.size() + size > kMostReplyBytes;
  if (transfer.refused) return 0;
  reply.body.append(data, size);
  return size;
}

// About once a second, and as bytes come and go.
int Progress(void*, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  AliveDuring::Tell();
  return 0;
}

// Trainers and compilers that this process starts have nothing to do with its connections.
int CloseOnExec(void*, curl_socket_t socket, curlsocktype) {
  return fcntl(socket, F_SETFD, FD_CLOEXEC) == 0 ? CURL_SOCKOPT_OK : CURL_SOCKOPT_ERROR;
}

bool MayPass(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_AGAIN: return true;
    default: return false;
  }
}

// Sets the options of a request. One that is not taken ends it: a libcurl that is too old for signatures would send it without.
class Options {
 public:
  explicit Options(CURL* curl) : curl_(curl) {}
  template <typename Value>
  void Set(CURLoption option, Value value) {
    const CURLcode code = curl_easy_setopt(curl_, option, value);
    if (code == CURLE_OK || !failure_.empty()) return;
    const curl_easyoption* const known = curl_easy_option_by_id(option);
    failure_ = absl::StrCat("libcurl ", curl_version_info(CURLVERSION_NOW)->version, " does not take the option ",
                            known != nullptr ? known->name : absl::StrCat(option), ": ", curl_easy_strerror(code),
                            "; 7.85 or a later one is needed");
  }
  void Set(CURLoption option, const std::string& value) { Set(option, value.c_str()); }
  const std::string& failure() const { return failure_; }

 private:
  CURL* const curl_;
  std::string failure_;
};

void SetConnection(const S3Options& options, Options* curl) {
  curl->Set(CURLOPT_NOSIGNAL, 1L);
  curl->Set(CURLOPT_PROTOCOLS_STR, "http,https");
  curl->Set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl->Set(CURLOPT_PROXY, "");
  curl->Set(CURLOPT_FOLLOWLOCATION, 0L);  // a signature is of one host
  curl->Set(CURLOPT_PATH_AS_IS, 1L);
  curl->Set(CURLOPT_SSL_VERIFYPEER, 1L);
  curl->Set(CURLOPT_SSL_VERIFYHOST, 2L);
  if (!options.ca_bundle.empty()) curl->Set(CURLOPT_CAINFO, options.ca_bundle);
  curl->Set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl->Set(CURLOPT_LOW_SPEED_LIMIT, kSlowBytesPerSecond);
  curl->Set(CURLOPT_SOCKOPTFUNCTION, CloseOnExec);
  curl->Set(CURLOPT_BUFFERSIZE, 512L << 10);
  curl->Set(CURLOPT_UPLOAD_BUFFERSIZE, 512L << 10);
  curl->Set(CURLOPT_USERNAME, options.access_key);
  curl->Set(CURLOPT_PASSWORD, options.secret_key);
  curl->Set(CURLOPT_AWS_SIGV4, absl::StrCat("aws:amz:", options.region, ":s3"));
}

void SetMessage(const S3Request& request, Options* curl, Headers* headers) {
  const std::string url = request.query.empty() ? request.url : absl::StrCat(request.url, "?", request.query);
  curl->Set(CURLOPT_URL, url);
  if (request.method == "PUT" || request.method == "POST") {
    // From memory, so that libcurl signs what the body is.
    curl->Set(CURLOPT_POSTFIELDS, request.body.data() == nullptr ? "" : request.body.data());
    curl->Set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    Add(headers, "content-type: application/octet-stream");
  } else {
    curl->Set(CURLOPT_HTTPGET, 1L);
  }
  curl->Set(CURLOPT_CUSTOMREQUEST, request.method);
  if (request.bytes > 0) curl->Set(CURLOPT_RANGE, absl::StrCat(request.offset, "-", request.offset + request.bytes - 1));
  // Which libcurl signs, and a store checks the body by.
  Add(headers, "x-amz-content-sha256: " + absl::BytesToHexString(DigestOf(request.body, EVP_sha256())));
  for (const std::string& line : request.headers) Add(headers, line);
}

}  // namespace

AliveDuring::AliveDuring(std::function<void()> alive) : alive_(std::move(alive)), outer_(std::exchange(innermost, this)) {}

AliveDuring::~AliveDuring() { innermost = outer_; }

void AliveDuring::Tell() {
  if (innermost != nullptr && innermost->alive_) innermost->alive_();
}

S3Reply Send(const S3Options& options, const S3Request& request) {
  thread_local Handle handle;
  CURL* const curl = handle.Get();
  Transfer transfer{curl, request, {}};
  S3Reply& reply = transfer.reply;
  if (curl == nullptr) {
    reply.failure = "libcurl has no memory";
    return reply;
  }
  char why[CURL_ERROR_SIZE] = "";
  Headers headers(nullptr, curl_slist_free_all);
  // The handle stays, and must not know of what ends with this call.
  const std::unique_ptr<CURL, void (*)(CURL*)> reset(curl, curl_easy_reset);
  Options set(curl);
  SetConnection(options, &set);
  SetMessage(request, &set, &headers);
  if (!options.session_token.empty()) Add(&headers, "x-amz-security-token: " + options.session_token);
  set.Set(CURLOPT_HTTPHEADER, headers.get());
  set.Set(CURLOPT_LOW_SPEED_TIME, request.takes_long ? kLongSeconds : kSlowSeconds);
  set.Set(CURLOPT_ERRORBUFFER, static_cast<char*>(why));
  set.Set(CURLOPT_WRITEFUNCTION, Take);
  set.Set(CURLOPT_WRITEDATA, &transfer);
  set.Set(CURLOPT_XFERINFOFUNCTION, Progress);
  set.Set(CURLOPT_NOPROGRESS, 0L);
  reply.failure = set.failure();
  if (!reply.failure.empty()) return reply;
  const CURLcode code = curl_easy_perform(curl);
  if (code != CURLE_OK) {
    reply.failure = transfer.refused ? "more came than was asked for" : why[0] != '\0' ? why : curl_easy_strerror(code);
    reply.may_pass = MayPass(code);
    return reply;
  }
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  reply.status = static_cast<int>(status);
  curl_header* etag = nullptr;
  if (curl_easy_header(curl, "etag", 0, CURLH_HEADER, -1, &etag) == CURLHE_OK) reply.etag = etag->value;
  return reply;
}

std::string Encode(std::string_view text, bool keep_slashes) {
  std::string encoded;
  for (const unsigned char c : text) {
    const bool plain = absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.' || c == '~' || (keep_slashes && c == '/');
    if (plain) {
      encoded.push_back(static_cast<char>(c));
    } else {
      absl::StrAppendFormat(&encoded, "%%%02X", c);
    }
  }
  return encoded;
}

}  // namespace legoai::objectstore
