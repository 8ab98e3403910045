#include "server/http/static_files.h"

#include <openssl/sha.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"

namespace legoai::server {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxBytes = 64 << 20;

std::string TypeOf(const std::string& extension) {
  static const auto* const types = new std::map<std::string, std::string>{{".html", "text/html; charset=utf-8"},
                                                                          {".js", "text/javascript; charset=utf-8"},
                                                                          {".css", "text/css; charset=utf-8"},
                                                                          {".svg", "image/svg+xml"},
                                                                          {".png", "image/png"},
                                                                          {".ico", "image/x-icon"},
                                                                          {".json", "application/json"},
                                                                          {".map", "application/json"},
                                                                          {".woff2", "font/woff2"},
                                                                          {".txt", "text/plain; charset=utf-8"}};
  const auto found = types->find(extension);
  return found == types->end() ? "application/octet-stream" : found->second;
}

std::string ETagOf(const std::string& content) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(content.data()), content.size(), digest);
  return absl::StrCat("\"", absl::BytesToHexString({reinterpret_cast<const char*>(digest), 16}), "\"");
}

absl::StatusOr<StaticFile> ReadFile(const fs::path& path, const std::string& name) {
  std::ifstream in(path, std::ios::binary);
  StaticFile file;
  file.content.assign(std::istreambuf_iterator<char>(in), {});
  if (!in) return absl::UnavailableError(absl::StrCat(path.string(), " cannot be read"));
  file.type = TypeOf(path.extension().string());
  file.etag = ETagOf(file.content);
  file.cache_control = name.starts_with("/assets/") ? "public, max-age=31536000, immutable" : "no-cache";
  return file;
}

}  // namespace

absl::StatusOr<StaticFiles> StaticFiles::Load(const std::string& directory, std::string_view flag) {
  StaticFiles files;
  std::error_code error;
  size_t bytes = 0;
  const fs::path root = directory;
  for (fs::recursive_directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    if (!fs::is_regular_file(it->symlink_status())) continue;
    const std::string name = absl::StrCat("/", it->path().lexically_relative(root).generic_string());
    absl::StatusOr<StaticFile> file = ReadFile(it->path(), name);
    if (!file.ok()) return FieldError(flag, directory, std::string(file.status().message()));
    bytes += file->content.size();
    if (bytes > kMaxBytes) return FieldError(flag, directory, "holds more than 64 MiB: give the folder of the built page");
    files.files_[name] = *std::move(file);
  }
  if (error) return FieldError(flag, directory, absl::StrCat("cannot be listed: ", error.message()));
  if (!files.files_.count("/index.html")) {
    return FieldError(flag, directory, "holds no index.html: build the page with tools/build_web");
  }
  return files;
}

const StaticFile* StaticFiles::Find(std::string_view path) const {
  auto found = files_.find(path);
  const std::string_view last = path.substr(path.rfind('/') + 1);
  if (found == files_.end() && last.find('.') == std::string_view::npos) found = files_.find("/index.html");
  return found == files_.end() ? nullptr : &found->second;
}

}  // namespace legoai::server
