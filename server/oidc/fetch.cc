#include "server/oidc/fetch.h"

#include <curl/curl.h>
#include <fcntl.h>

#include <memory>
#include <mutex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/objectstore/s3_options.h"
#include "proto/channel.h"
#include "proto/errors.h"
#include "proto/text.h"

namespace legoai::oidc {
namespace {

constexpr long kConnectSeconds = 5;

using OwnedUrl = std::unique_ptr<CURLU, void (*)(CURLU*)>;

// Empty where the URL has no such part.
std::string PartOf(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, 0) != CURLUE_OK) return "";
  const std::unique_ptr<char, void (*)(void*)> owner(text, curl_free);
  return text;
}

struct Transfer {
  const FetchOptions& options;
  const std::atomic<bool>& ends;
  std::string body = {};
  bool too_large = false;
};

size_t Take(char* data, size_t, size_t size, void* context) {
  Transfer& transfer = *static_cast<Transfer*>(context);
  transfer.too_large = transfer.body.size() + size > transfer.options.most_bytes;
  if (transfer.too_large) return 0;
  transfer.body.append(data, size);
  return size;
}

int Progress(void* context, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const Transfer*>(context)->ends ? 1 : 0;
}

// lego-sim processes that the server starts have nothing to do with its connections.
int CloseOnExec(void*, curl_socket_t socket, curlsocktype) {
  return fcntl(socket, F_SETFD, FD_CLOEXEC) == 0 ? CURL_SOCKOPT_OK : CURL_SOCKOPT_ERROR;
}

void SetOptions(CURL* curl, const std::string& url, Transfer* transfer) {
  const std::string& given = transfer->options.ca_file;
  const std::string ca = given.empty() ? objectstore::SystemCaBundle() : given;
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L);  // waits for no name that is still being looked up
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 1L);
  curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 2L);
  if (!ca.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, ca.c_str());
  // The others that the system trusts are not those of the file.
  if (!given.empty()) curl_easy_setopt(curl, CURLOPT_CAPATH, nullptr);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(absl::ToInt64Milliseconds(transfer->options.limit)));
  curl_easy_setopt(curl, CURLOPT_SOCKOPTFUNCTION, CloseOnExec);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, Take);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, transfer);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, Progress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, transfer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
}

}  // namespace

bool IsUrl(const std::string& text) { return absl::StrContains(text, "://"); }

absl::Status CheckUrl(const std::string& field, const std::string& text) {
  if (!IsPrintable(text)) return FieldError(field, Printable(text), "must be printable");
  const OwnedUrl url(curl_url(), curl_url_cleanup);
  const bool reads = curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) == CURLUE_OK;
  const std::string scheme = reads ? PartOf(url.get(), CURLUPART_SCHEME) : "", host = PartOf(url.get(), CURLUPART_HOST);
  // Before an @ there may be a password, so the value is not repeated.
  if (absl::StrContains(text, '@'))
    return FieldError(field, "", "must have no user and no password: a provider's keys are everybody's");
  if (host.empty() || (scheme != "https" && scheme != "http") || !PartOf(url.get(), CURLUPART_FRAGMENT).empty())
    return FieldError(field, text, "must be the path of a file, or https://HOST/PATH");
  if (scheme == "https" || IsOnThisMachine(absl::StrCat(host, ":0"))) return absl::OkStatus();
  return FieldError(field, text,
                    "is in clear, so that whoever is on the way can put keys of their own into it: give an https:// URL");
}

absl::StatusOr<std::string> Fetch(const std::string& url, const FetchOptions& options, const std::atomic<bool>& ends) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  const std::unique_ptr<CURL, void (*)(CURL*)> curl(curl_easy_init(), curl_easy_cleanup);
  if (curl == nullptr) return absl::UnavailableError("libcurl has no memory");
  Transfer transfer{options, ends};
  char why[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl.get(), CURLOPT_ERRORBUFFER, static_cast<char*>(why));
  SetOptions(curl.get(), url, &transfer);
  const CURLcode code = curl_easy_perform(curl.get());
  if (transfer.too_large) return absl::UnavailableError(absl::StrCat("has more than ", options.most_bytes >> 10, " KiB"));
  if (code != CURLE_OK) return absl::UnavailableError(Printable(why[0] != '\0' ? why : curl_easy_strerror(code)));
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  if (status != 200) return absl::UnavailableError(absl::StrCat("the answer has the status ", status, ", and not 200"));
  return std::move(transfer.body);
}

}  // namespace legoai::oidc
