#include "core/objectstore/s3_request.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace legoai::objectstore {
namespace {

constexpr size_t kMostReplyBytes = size_t{64} << 20;
thread_local const AliveDuring* innermost = nullptr;

constexpr long kConnectSeconds = 10;
// A transfer that is slower than this for so long is given up.
constexpr long kSlowBytesPerSecond = 1024, kSlowSeconds = 60;

// Of this thread, with its connections. A process that was forked must not use those of its parent, nor end them.
class Handle {
 public:
  ~Handle() {
    if (curl_ != nullptr && process_ == getpid()) curl_easy_cleanup(curl_);
  }
  CURL* Get() {
    if (curl_ != nullptr && process_ == getpid()) {
      curl_easy_reset(curl_);
      return curl_;
    }
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

void Add(Headers* headers, const std::string& line) { headers->reset(curl_slist_append(headers->release(), line.c_str())); }

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

void SetConnection(CURL* curl, const S3Options& options) {
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);  // a signature is of one host
  curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 1L);
  curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 2L);
  if (!options.ca_bundle.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, options.ca_bundle.c_str());
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, kSlowBytesPerSecond);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, kSlowSeconds);
  curl_easy_setopt(curl, CURLOPT_SOCKOPTFUNCTION, CloseOnExec);
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 512L << 10);
  curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, 512L << 10);
  curl_easy_setopt(curl, CURLOPT_USERNAME, options.access_key.c_str());
  curl_easy_setopt(curl, CURLOPT_PASSWORD, options.secret_key.c_str());
  curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, absl::StrCat("aws:amz:", options.region, ":s3").c_str());
}

std::string Sha256(std::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr);
  return absl::BytesToHexString(std::string(reinterpret_cast<const char*>(digest), size));
}

void SetMessage(CURL* curl, const S3Request& request, Headers* headers) {
  const std::string url = request.query.empty() ? request.url : absl::StrCat(request.url, "?", request.query);
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  if (request.method == "PUT" || request.method == "POST") {
    // From memory, so that libcurl signs what the body is.
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.body.data() == nullptr ? "" : request.body.data());
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    Add(headers, "content-type: application/octet-stream");
  } else {
    curl_easy_setopt(curl, CURLOPT_HTTPGET, 1L);
  }
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  if (request.bytes > 0)
    curl_easy_setopt(curl, CURLOPT_RANGE, absl::StrCat(request.offset, "-", request.offset + request.bytes - 1).c_str());
  // Which libcurl signs, and a store checks the body by.
  Add(headers, "x-amz-content-sha256: " + Sha256(request.body));
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
  SetConnection(curl, options);
  SetMessage(curl, request, &headers);
  if (!options.session_token.empty()) Add(&headers, "x-amz-security-token: " + options.session_token);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, Take);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, Progress);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
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
