#include "server/store/pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"

namespace legoai::store {
namespace {

constexpr size_t kLogHeader = 32, kFrameHeader = 24, kDatabaseHeader = 100;
constexpr uint8_t kInteriorIndex = 0x02, kLeafIndex = 0x0a, kLeafTable = 0x0d;
constexpr uint64_t kLongestRow = 1'000'000'000;  // SQLite's own bound

uint32_t Number(std::string_view bytes, size_t at, int size = 4) {
  uint32_t value = 0;
  for (int i = 0; i < size; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + static_cast<size_t>(i)]);
  return value;
}

bool IsPageSize(uint32_t size) { return size >= 512 && size <= 65536 && (size & (size - 1)) == 0; }

struct Checksum {
  uint32_t first = 0, second = 0;
  void Add(std::string_view bytes, bool big_endian) {
    for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
      first += Word(bytes, at, big_endian) + second;
      second += Word(bytes, at + 4, big_endian) + first;
    }
  }
  bool Is(std::string_view bytes, size_t at) const { return first == Number(bytes, at) && second == Number(bytes, at + 4); }
  static uint32_t Word(std::string_view bytes, size_t at, bool big_endian) {
    const uint32_t word = Number(bytes, at);
    return big_endian ? word : __builtin_bswap32(word);
  }
};

// Frames of this log (not of an earlier one in the same file) behind the commit that the frame at `at` belongs to. Frames of a
// commit are written only when the commit before is durable, so that one was damaged later, and not torn by a crash.
bool HasLaterCommit(std::string_view log, size_t at, size_t frame_bytes) {
  const std::string_view salts = log.substr(16, 8);
  bool ended = false;
  for (; at + frame_bytes <= log.size(); at += frame_bytes) {
    if (log.substr(at + 8, 8) != salts) continue;
    if (ended) return true;
    ended = Number(log, at + 4) != 0;
  }
  return false;
}

// 0: no varint.
size_t ReadVarint(std::string_view bytes, size_t at, uint64_t* value) {
  *value = 0;
  for (size_t i = 0; i < 9 && at + i < bytes.size(); ++i) {
    const auto byte = static_cast<uint8_t>(bytes[at + i]);
    if (i == 8) {
      *value = *value << 8 | byte;
      return 9;
    }
    *value = *value << 7 | (byte & 0x7f);
    if (byte < 0x80) return i + 1;
  }
  return 0;
}

int64_t Signed(std::string_view bytes) {
  int64_t value = bytes.empty() || static_cast<int8_t>(bytes[0]) >= 0 ? 0 : -1;
  for (const char byte : bytes) value = static_cast<int64_t>(static_cast<uint64_t>(value) << 8 | static_cast<uint8_t>(byte));
  return value;
}

// By the serial type; false: it does not fit.
bool ReadCell(uint64_t type, std::string_view payload, size_t* at, Cell* cell) {
  constexpr size_t kIntegerBytes[] = {0, 1, 2, 3, 4, 6, 8};
  if (type == 10 || type == 11) return false;
  const size_t size = type <= 6 ? kIntegerBytes[type] : type == 7 ? 8 : type <= 9 ? 0 : static_cast<size_t>((type - 12) / 2);
  if (size > payload.size() - *at) return false;
  const std::string_view bytes = payload.substr(*at, size);
  *at += size;
  if (type == 0) return true;
  if (type <= 9) {
    cell->kind = type == 7 ? Cell::Kind::kReal : Cell::Kind::kInteger;
    cell->number = type >= 8 ? static_cast<int64_t>(type - 8) : Signed(bytes);
    return true;
  }
  cell->kind = type % 2 == 0 ? Cell::Kind::kBlob : Cell::Kind::kText;
  cell->bytes = std::string(bytes);
  return true;
}

bool ReadRecord(std::string_view payload, std::vector<Cell>* cells) {
  uint64_t header = 0;
  size_t at = ReadVarint(payload, 0, &header);
  if (at == 0 || header > payload.size() || header < at) return false;
  size_t value_at = static_cast<size_t>(header);
  while (at < header) {
    uint64_t type = 0;
    const size_t size = ReadVarint(payload.substr(0, static_cast<size_t>(header)), at, &type);
    if (size == 0 || !ReadCell(type, payload, &value_at, &cells->emplace_back())) return false;
    at += size;
  }
  return value_at == payload.size();
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 && errno == ENOENT) return MappedFile(std::string_view());
  struct stat facts {};
  void* bytes = nullptr;
  bool ok = file >= 0 && fstat(file, &facts) == 0;
  if (ok && facts.st_size > 0) {
    bytes = mmap(nullptr, static_cast<size_t>(facts.st_size), PROT_READ, MAP_PRIVATE, file, 0);
    ok = bytes != MAP_FAILED;
  }
  const int error = errno;
  if (file >= 0) close(file);
  if (!ok) {
    return FieldError("store", path, absl::StrCat("cannot be read (", std::strerror(error), "): check the file and its rights"),
                      absl::StatusCode::kUnavailable);
  }
  return MappedFile(std::string_view(static_cast<const char*>(bytes), static_cast<size_t>(facts.st_size)));
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

LogContent ReadLog(std::string_view log) {
  LogContent content;
  // The header is durable before the first frame is written.
  if (log.size() <= kLogHeader) return content;
  const bool big_endian = Number(log, 0) == 0x377f0683;
  Checksum sum;
  sum.Add(log.substr(0, 24), big_endian);
  const uint32_t page_size = Number(log, 8);
  if ((Number(log, 0) | 1) != 0x377f0683 || Number(log, 4) != 3007000 || !IsPageSize(page_size) || !sum.Is(log, 24)) {
    content.damage = "the header of its log (-wal) is unreadable";
    return content;
  }
  content.page_size = page_size;
  const size_t frame_bytes = kFrameHeader + page_size;
  std::map<uint32_t, std::string_view> uncommitted;
  size_t at = kLogHeader;
  for (; at + frame_bytes <= log.size(); at += frame_bytes) {
    const std::string_view page = log.substr(at + kFrameHeader, page_size);
    sum.Add(log.substr(at, 8), big_endian);
    sum.Add(page, big_endian);
    if (log.substr(at + 8, 8) != log.substr(16, 8) || !sum.Is(log, at + 16)) break;
    uncommitted[Number(log, at)] = page;
    if (const uint32_t pages = Number(log, at + 4); pages != 0) {
      content.page_count = pages;
      uncommitted.merge(content.pages);
      content.pages.swap(uncommitted);
      uncommitted.clear();
    }
  }
  if (HasLaterCommit(log, at, frame_bytes))
    content.damage = absl::StrCat("its log (-wal) is damaged at byte ", at, ", and there are commits behind it");
  return content;
}

DatabasePages::DatabasePages(std::string_view database, const LogContent& log) : database_(database), log_(log) {
  if (log.page_size != 0) page_size_ = log.page_size;
  const auto in_log = log.pages.find(1);
  const std::string_view first = in_log != log.pages.end() ? in_log->second : database.substr(0, kDatabaseHeader);
  page_count_ = static_cast<uint32_t>(database.size() / page_size_);
  usable_ = page_size_;
  if (first.size() >= kDatabaseHeader && first.starts_with(std::string_view("SQLite format 3\0", 16))) {
    const uint32_t size = Number(first, 16, 2) == 1 ? 65536 : Number(first, 16, 2);
    has_header_ = IsPageSize(size) && (log.page_size == 0 || log.page_size == size) && static_cast<uint8_t>(first[20]) < 64;
    if (has_header_) {
      page_size_ = size;
      usable_ = size - static_cast<uint8_t>(first[20]);
    }
  }
  page_count_ = std::max(static_cast<uint32_t>(database.size() / page_size_), log.pages.empty() ? 0 : log.pages.rbegin()->first);
}

std::string_view DatabasePages::Page(uint32_t number) const {
  if (number == 0) return {};
  if (const auto found = log_.pages.find(number); found != log_.pages.end()) return found->second;
  const size_t at = size_t{number - 1} * page_size_;
  return at + page_size_ <= database_.size() ? database_.substr(at, page_size_) : std::string_view();
}

std::set<uint32_t> DatabasePages::FreePages() const {
  std::set<uint32_t> free;
  const std::string_view first = Page(1);
  if (!has_header_ || first.empty()) return free;
  for (uint32_t trunk = Number(first, 32); trunk != 0 && trunk <= page_count_ && free.insert(trunk).second;) {
    const std::string_view page = Page(trunk);
    if (page.empty()) break;
    const uint32_t count = std::min(Number(page, 4), usable_ / 4 - 2);
    for (uint32_t i = 0; i < count; ++i) free.insert(Number(page, 8 + size_t{4} * i));
    trunk = Number(page, 0);
  }
  return free;
}

bool DatabasePages::ReadPayload(std::string_view page, size_t at, uint64_t size, bool of_table, std::string* payload) const {
  const uint64_t most = of_table ? usable_ - 35 : (usable_ - 12) * 64 / 255 - 23;
  const uint64_t least = (usable_ - 12) * 32 / 255 - 23;
  uint64_t local = size;
  if (size > most) {
    local = least + (size - least) % (usable_ - 4);
    if (local > most) local = least;
  }
  if (size > kLongestRow || at + local + (local < size ? 4 : 0) > usable_) return false;
  payload->assign(page.substr(at, static_cast<size_t>(local)));
  if (local == size) return true;
  uint32_t next = Number(page, at + static_cast<size_t>(local));
  while (payload->size() < size) {
    const std::string_view overflow = Page(next);
    if (overflow.empty()) return false;
    next = Number(overflow, 0);
    payload->append(overflow.substr(4, std::min<size_t>(usable_ - 4, static_cast<size_t>(size) - payload->size())));
  }
  return next == 0;
}

std::optional<RawRow> DatabasePages::ReadRow(std::string_view page, size_t at, uint8_t kind) const {
  RawRow row;
  row.of_table = kind == kLeafTable;
  if (kind == kInteriorIndex) at += 4;  // the child on its left
  uint64_t size = 0, row_id = 0;
  size_t read = ReadVarint(page, at, &size);
  if (read == 0) return std::nullopt;
  at += read;
  if (row.of_table) {
    read = ReadVarint(page, at, &row_id);
    if (read == 0) return std::nullopt;
    at += read;
  }
  row.row_id = static_cast<int64_t>(row_id);
  std::string payload;
  if (!ReadPayload(page, at, size, row.of_table, &payload) || !ReadRecord(payload, &row.cells)) return std::nullopt;
  return row;
}

int64_t DatabasePages::ForEachRow(const std::function<void(const RawRow&)>& take) const {
  const std::set<uint32_t> free = FreePages();
  int64_t unreadable = 0;
  for (uint32_t number = 1; number <= page_count_; ++number) {
    const std::string_view page = Page(number);
    const size_t header = number == 1 ? kDatabaseHeader : 0;
    if (page.empty() || free.count(number)) continue;
    const auto kind = static_cast<uint8_t>(page[header]);
    if (kind != kLeafTable && kind != kLeafIndex && kind != kInteriorIndex) continue;
    const size_t pointers = header + (kind == kInteriorIndex ? 12 : 8), cells = Number(page, header + 3, 2);
    if (pointers + 2 * cells > usable_) {
      ++unreadable;
      continue;
    }
    for (size_t i = 0; i < cells; ++i) {
      const size_t at = Number(page, pointers + 2 * i, 2);
      const auto row = at >= pointers + 2 * cells && at + 4 <= usable_ ? ReadRow(page, at, kind) : std::nullopt;
      if (row) {
        take(*row);
      } else {
        ++unreadable;
      }
    }
  }
  return unreadable;
}

}  // namespace legoai::store
