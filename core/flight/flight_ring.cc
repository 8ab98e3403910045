#include "core/flight/flight_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/errors.h"
#include "proto/read_file.h"
#include "proto/status.h"
#include "proto/text.h"

namespace legoai::comm {

struct FlightRing::Header {
  char magic[8];  // "LEGOFR1"
  int64_t rank, world_size, capacity, timeout_ms;
  int64_t records_offset, groups_bytes;
  char backend[16];
};

namespace {

constexpr char kMagic[8] = "LEGOFR1";
constexpr size_t kAlignment = 4096;
constexpr int64_t kDims = std::size(FlightRing::Record{}.input_sizes);

// "name:0,1,2;..." in the order of the groups' numbers.
std::string GroupsText(const std::vector<mesh::Group>& groups) {
  return absl::StrJoin(groups, ";", [](std::string* out, const mesh::Group& group) {
    absl::StrAppend(out, mesh::NameOf(group.dim), ":", absl::StrJoin(group.ranks.List(), ","));
  });
}

absl::Status SystemError(const std::string& path, const char* what, int error) {
  std::string remedy;
  absl::StatusCode code = absl::StatusCode::kUnavailable;
  if (error == ENOSPC || error == EDQUOT) {
    remedy = "; free some space, choose another disk, or lower comm.trace_buf_size";
    code = absl::StatusCode::kResourceExhausted;
  } else if (error == EFBIG) {  // no room that is made later helps
    remedy = "; lower comm.trace_buf_size, or raise the limit on the size of a file (ulimit -f)";
    code = absl::StatusCode::kOutOfRange;
  }
  return FieldError(path, "", absl::StrCat(what, " the flight ring: ", std::strerror(error), remedy), code);
}

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Text of a record or header, which a damaged file need not end, nor fill with text.
template <size_t N>
std::string Text(const char (&text)[N]) {
  return ToUtf8({text, strnlen(text, N)});
}

v1::FlightEntry ToEntry(const FlightRing::Record& record, const v1::FlightDump& dump, const std::string& backend,
                        int64_t timeout_ms) {
  v1::FlightEntry entry;
  entry.set_record_id(record.id - 1);
  entry.set_pg_id(record.group);
  if (record.group >= 0 && record.group < dump.groups_size()) entry.set_process_group(dump.groups(record.group).name());
  entry.set_collective_seq_id(record.collective_sequence);
  entry.set_p2p_seq_id(record.p2p_sequence);
  entry.set_op_id(record.operation);
  entry.set_profiling_name(absl::StrCat(backend, ":", Text(record.kind)));
  // Of a damaged record: -1 is what divides the sizes of one tensor from those of the next.
  const auto size = [](int64_t said) { return std::max<int64_t>(said, -1); };
  for (int64_t i = 0; i < std::min(record.input_dims, kDims); ++i) entry.add_input_sizes(size(record.input_sizes[i]));
  for (int64_t i = 0; i < std::min(record.output_dims, kDims); ++i) entry.add_output_sizes(size(record.output_sizes[i]));
  entry.set_dtype(Text(record.dtype));
  entry.set_bytes(record.bytes);
  entry.set_time_created_ns(record.created_ns);
  entry.set_time_started_ns(record.started_ns);
  entry.set_time_completed_ns(record.completed_ns);
  entry.set_state(record.completed_ns ? "completed" : record.started_ns ? "started" : "scheduled");
  entry.set_timeout_ms(timeout_ms);
  entry.set_is_p2p(entry.profiling_name() == backend + ":send" || entry.profiling_name() == backend + ":recv");
  entry.set_peer(entry.is_p2p() ? record.peer : -1);
  return entry;
}

// "name:0,1,2;..." of a ring's file.
void ParseGroups(const std::string& text, v1::FlightDump* dump) {
  for (absl::string_view part : absl::StrSplit(text, ';', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> named = absl::StrSplit(part, absl::MaxSplits(':', 1));
    auto* group = dump->add_groups();
    group->set_pg_id(dump->groups_size() - 1);
    group->set_name(ToUtf8(named.first));
    for (absl::string_view rank : absl::StrSplit(named.second, ',')) {
      int64_t value = 0;
      if (absl::SimpleAtoi(rank, &value)) group->add_ranks(value);
    }
  }
}

// Reads a ring's file by system calls: touching a mapping of one that is cut off meanwhile, or on a disk that fails, would end
// the process.
class RingReader {
 public:
  explicit RingReader(const std::string& path) : path_(path) {}

  absl::StatusOr<v1::FlightDump> Read(const std::string& reason) {
    absl::StatusOr<int> opened = OpenRegularFile(path_);
    if (absl::IsNotFound(opened.status()))
      return FieldError("flight ring", path_, "there is no such file; the rank has not started", absl::StatusCode::kNotFound);
    if (!opened.ok()) return opened.status();
    file_.emplace(*opened);
    RETURN_IF_ERROR(ReadHeader());
    std::string groups(header_.groups_bytes, '\0');
    RETURN_IF_ERROR(ReadAt(sizeof(header_), groups.size(), groups.data()));
    v1::FlightDump dump;
    dump.set_version("2.10");
    dump.set_rank(header_.rank);
    dump.set_world_size(header_.world_size);
    dump.set_reason(reason);
    ParseGroups(groups, &dump);
    RETURN_IF_ERROR(ReadRecords());
    std::sort(found_.begin(), found_.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    for (const auto& record : found_) *dump.add_entries() = ToEntry(record, dump, Text(header_.backend), header_.timeout_ms);
    return dump;
  }

 private:
  using Record = FlightRing::Record;
  static constexpr int64_t kRecordBytes = sizeof(Record);

  absl::Status Wrong() const {
    return FieldError("flight ring", path_, "this is no flight ring; give flight/rank-R of a run directory");
  }

  absl::Status ReadAt(int64_t offset, int64_t bytes, void* out) const {
    for (int64_t done = 0; done < bytes;) {
      const ssize_t got = pread(file_->fd(), static_cast<char*>(out) + done, bytes - done, offset + done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return SystemError(path_, "cannot read", errno);
      if (got == 0) return Wrong();  // shorter than it was
      done += got;
    }
    return absl::OkStatus();
  }

  absl::Status ReadHeader() {
    struct stat info {};
    if (fstat(file_->fd(), &info) != 0 || info.st_size < kRecordBytes) return Wrong();
    RETURN_IF_ERROR(ReadAt(0, sizeof(header_), &header_));
    const bool plausible = std::memcmp(header_.magic, kMagic, sizeof kMagic) == 0 && header_.records_offset >= 0 &&
                           header_.records_offset <= info.st_size && header_.capacity >= 1 &&
                           header_.capacity <= (info.st_size - header_.records_offset) / kRecordBytes &&
                           header_.groups_bytes >= 0 &&
                           header_.groups_bytes <= header_.records_offset - static_cast<int64_t>(sizeof(header_));
    return plausible ? absl::OkStatus() : Wrong();
  }

  // The rank may be writing. It takes a record's id away before it changes the rest, and gives it back last: what is read between
  // two readings of the same id is whole.
  absl::Status ReadRecords() {
    constexpr int64_t kAtOnce = 1024;
    std::array<std::vector<Record>, 3> readings;
    for (int64_t first = 0; first < header_.capacity; first += kAtOnce) {
      const int64_t count = std::min(kAtOnce, header_.capacity - first);
      for (std::vector<Record>& reading : readings) {
        reading.resize(count);
        const absl::Status status = ReadAt(header_.records_offset + first * kRecordBytes, count * kRecordBytes, reading.data());
        if (!status.ok()) return status;
        std::atomic_thread_fence(std::memory_order_seq_cst);
      }
      const auto& [before, records, after] = readings;
      for (int64_t i = 0; i < count; ++i) {
        if (records[i].id != 0 && before[i].id == records[i].id && after[i].id == records[i].id) found_.push_back(records[i]);
      }
    }
    return absl::OkStatus();
  }

  const std::string& path_;
  std::optional<File> file_;
  FlightRing::Header header_{};
  std::vector<Record> found_;
};

}  // namespace

FlightRing::FlightRing(void* memory, size_t bytes) : header_(static_cast<Header*>(memory)), bytes_(bytes) {
  records_ = reinterpret_cast<Record*>(static_cast<char*>(memory) + header_->records_offset);
}

FlightRing::~FlightRing() { munmap(header_, bytes_); }

absl::StatusOr<std::unique_ptr<FlightRing>> FlightRing::Create(const std::string& path, int64_t rank, int64_t world_size,
                                                               const std::vector<mesh::Group>& groups, int64_t capacity,
                                                               const std::string& backend, int64_t timeout_ms) {
  const std::string text = GroupsText(groups);
  const size_t records_offset = (sizeof(Header) + text.size() + kAlignment - 1) / kAlignment * kAlignment;
  const size_t bytes = records_offset + capacity * sizeof(Record);
  unlink(path.c_str());  // a reader of the last attempt's ring keeps its own
  File file(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (file.fd() < 0) return SystemError(path, "cannot make", errno);
  if (const int error = posix_fallocate(file.fd(), 0, bytes); error != 0) {
    unlink(path.c_str());
    return SystemError(path, "cannot reserve", error);
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    unlink(path.c_str());
    return SystemError(path, "cannot map", error);
  }
  auto* header = static_cast<Header*>(memory);
  header->rank = rank;
  header->world_size = world_size;
  header->capacity = capacity;
  header->timeout_ms = timeout_ms;
  header->records_offset = records_offset;
  header->groups_bytes = text.size();
  std::strncpy(header->backend, backend.c_str(), sizeof header->backend - 1);
  std::memcpy(static_cast<char*>(memory) + sizeof(Header), text.data(), text.size());
  std::memcpy(header->magic, kMagic, sizeof kMagic);
  return std::unique_ptr<FlightRing>(new FlightRing(memory, bytes));
}

FlightRing::Record* FlightRing::Slot(uint64_t id) { return &records_[(id - 1) % header_->capacity]; }

int64_t FlightRing::capacity() const { return header_->capacity; }

uint64_t FlightRing::Append(Record record) {
  static_assert(std::is_trivially_copyable_v<Record>);
  const uint64_t id = record.id;
  Record* slot = Slot(id);
  std::atomic_ref<uint64_t> slot_id(slot->id);
  slot_id.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  record.id = 0;
  std::memcpy(slot, &record, sizeof record);
  slot_id.store(id, std::memory_order_release);
  return id;
}

void FlightRing::SetStarted(uint64_t id, int64_t now_ns) {
  Record* slot = Slot(id);
  if (std::atomic_ref<uint64_t>(slot->id).load(std::memory_order_acquire) == id) {
    std::atomic_ref<int64_t>(slot->started_ns).store(now_ns, std::memory_order_relaxed);
  }
}

void FlightRing::SetCompleted(uint64_t id, int64_t now_ns) {
  Record* slot = Slot(id);
  if (std::atomic_ref<uint64_t>(slot->id).load(std::memory_order_acquire) == id) {
    std::atomic_ref<int64_t>(slot->completed_ns).store(now_ns, std::memory_order_relaxed);
  }
}

absl::StatusOr<v1::FlightDump> ReadFlightRing(const std::string& path, const std::string& reason) {
  return RingReader(path).Read(reason);
}

}  // namespace legoai::comm
