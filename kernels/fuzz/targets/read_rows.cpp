// Rows of any size come out of a file as they stand in it, by ring or by threads, wherever they start;
// a file that is too short is told, and then the next call is as good as ever.
#include "read_rows/read_rows.h"

#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/graphs.h"
#include "fuzz/target.h"

namespace lg::fuzz {
namespace {

class MemoryFile {
 public:
  explicit MemoryFile(const Exact<uint8_t>& content) : fd(memfd_create("fuzz", MFD_CLOEXEC)) {
    const ssize_t written = write(fd, content.data(), size_t(content.size()));
    expect(written == content.size(), "no file of ", content.size(), " bytes");
  }
  ~MemoryFile() { close(fd); }
  MemoryFile(const MemoryFile&) = delete;

  void cut(int64_t num_bytes) const { expect(ftruncate(fd, num_bytes) == 0, "no cut"); }

  const int fd;
};

}  // namespace

LG_FUZZ_TARGET(read_rows) {
  constexpr uint8_t kUntouched = 0xA5;
  const int64_t num_rows = choose.size(60);
  const int64_t row_bytes =
      choose.one_in(8) ? kReadBytes - 40 + choose.below(80) : choose.size(600);
  const int64_t unit = choose.one_of<int64_t>({1, 1, 8, 512, 4096});
  const int64_t offset = choose.flag() ? 0 : choose.size(5000);
  const int64_t count = num_rows == 0 ? 0 : choose.size(80), num_out = count + choose.below(3);
  Exact<uint8_t> content(offset + num_rows * row_bytes);
  for (int64_t i = 0; i < content.size(); ++i) content[i] = uint8_t(i * 167 >> 3);
  Exact<int64_t> ids(count), positions(count);
  for (int64_t i = 0; i < count; ++i) ids[i] = choose.below(num_rows);
  for (int64_t i = 0; i < count; ++i) positions[i] = count - 1 - i;
  const bool bad = count && choose.one_in(8);
  if (bad) ids[choose.below(count)] = bad_id<int64_t>(choose, num_rows);

  const MemoryFile memory(content);
  const RowFile file{memory.fd, "a file", offset, num_rows, row_bytes, unit};
  RowReader reader(row_bytes, unit, int(choose.between(1, 9)), choose.flag());
  Exact<uint8_t> out(num_out * row_bytes, kUntouched);
  if (!bad && count && row_bytes && choose.one_in(4)) {
    int64_t last = 0;
    for (const int64_t id : ids) last = std::max(last, id);
    memory.cut(choose.below(offset + (last + 1) * row_bytes));
    bool told = false;
    try {
      reader.read(file, ids.data(), nullptr, count, out.data(), num_out);
    } catch (const FeatureFileError&) {
      told = true;
    }
    expect(told, "the file's end was not told");
    expect(pwrite(memory.fd, content.data(), size_t(content.size()), 0) == content.size(),
           "no file");
    std::fill_n(out.data(), out.size(), kUntouched);
  }
  const Outcome outcome = outcome_of(
      [&] { reader.read(file, ids.data(), positions.data(), count, out.data(), num_out); });
  expect(outcome == (bad ? Outcome::kSeedError : Outcome::kDone), bad ? "bad" : "sound",
         " ids: ", outcome);
  for (int64_t i = 0; i < num_out; ++i) {
    const uint8_t* got = out.data() + i * row_bytes;
    const bool right =
        !bad && i < count
            ? std::equal(got, got + row_bytes,
                         content.data() + offset + ids[count - 1 - i] * row_bytes)
            : std::all_of(got, got + row_bytes, [](uint8_t b) { return b == kUntouched; });
    expect(right, "row ", i, " of ", row_bytes, " bytes");
  }
}

}  // namespace lg::fuzz
