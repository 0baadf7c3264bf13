#include "edge_spill/edge_spill.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "common/error.h"
#include "common/huge_array.h"
#include "common/signals.h"

namespace lg {
namespace {

template <class T>
T load(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
void store(uint8_t* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

}  // namespace

// Buffers for buckets [first, first + count), each written to the file as an extent when it is full.
class EdgeSpill::Writer {
 public:
  Writer(EdgeSpill& spill, int64_t first, int64_t count)
      : spill_(spill),
        first_(first),
        fill_(size_t(count)),
        buffers_(size_t(count * spill.extent_bytes_)) {}

  // Where the next record of a bucket goes; it is there once put() is called.
  uint8_t* place(int64_t bucket) {
    return &buffers_[size_t(bucket * spill_.extent_bytes_ + fill_[size_t(bucket)])];
  }
  void put(int64_t bucket) {
    if ((fill_[size_t(bucket)] += spill_.layout_.bytes()) == spill_.extent_bytes_) flush(bucket);
  }
  void finish() {
    for (int64_t bucket = 0; bucket < int64_t(fill_.size()); ++bucket) {
      if (fill_[size_t(bucket)] > 0) flush(bucket);
    }
  }

 private:
  void flush(int64_t number) {
    Bucket& bucket = spill_.buckets_[size_t(first_ + number)];
    const uint8_t* from = &buffers_[size_t(number * spill_.extent_bytes_)];
    int64_t left = std::exchange(fill_[size_t(number)], 0), at = spill_.end_;
    bucket.num_records += left / spill_.layout_.bytes();
    bucket.extents.push_back(at);
    spill_.end_ += spill_.extent_bytes_;
    while (left > 0) {
      const ssize_t written = pwrite(spill_.fd_, from, size_t(left), at);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        fail<FeatureFileError>(spill_.name_,
                               " cannot be written: ", std::strerror(written < 0 ? errno : ENOSPC),
                               ". Give a scratch folder on a disk with room.");
      }
      from += written, at += written, left -= written;
    }
  }

  EdgeSpill& spill_;
  const int64_t first_;
  std::vector<int64_t> fill_;
  HugeArray<uint8_t> buffers_;
};

EdgeSpill::EdgeSpill(int fd, std::string name, int64_t num_lists, int shift, int64_t extent_bytes,
                     const RecordLayout& layout)
    : fd_(fd),
      name_(std::move(name)),
      shift_(shift),
      layout_(layout),
      extent_bytes_(std::max<int64_t>(extent_bytes / layout.bytes(), 1) * layout.bytes()) {
  for (int64_t first = 0; first < num_lists; first += int64_t(1) << shift) {
    const int64_t count = std::min(int64_t(1) << shift, num_lists - first);
    buckets_.push_back({first, count, first});
  }
  writer_ = std::make_unique<Writer>(*this, 0, num_buckets());
}

EdgeSpill::~EdgeSpill() = default;

int64_t EdgeSpill::num_buckets() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return int64_t(buckets_.size());
}

const EdgeSpill::Bucket& EdgeSpill::bucket(int64_t number) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return buckets_[size_t(number)];
}

int64_t EdgeSpill::add(const EdgeBatch& batch) {
  const int64_t within = (int64_t(1) << shift_) - 1;
  int64_t id = batch.first_id;
  SignalWatch signals;
  for (int64_t e = 0; e < batch.count; ++e) {
    signals.after(1);
    const int32_t src = batch.src[e], dst = batch.dst[e];
    if ((src | dst) < 0) continue;
    const int64_t list = batch.first_list + dst * batch.step;
    const int64_t bucket = list >> shift_;
    uint8_t* record = writer_->place(bucket);
    store(record, uint32_t(list & within));
    store(record + 4, uint32_t(batch.first_src + src));
    if (layout_.has_time) {
      int64_t time = batch.time ? batch.time[e] : kNoTime;
      if (batch.source_time) time = std::max(time, batch.source_time[src]);
      store(record + layout_.time_at(), time);
    }
    if (layout_.id_bytes == 8) {
      store(record + layout_.id_at(), id);
    } else {
      store(record + layout_.id_at(), uint32_t(id));
    }
    ++id;
    if (layout_.weight_bytes == 8) {
      store(record + layout_.weight_at(), batch.weight ? load<double>(batch.weight + 8 * e) : 1.0);
    } else if (layout_.weight_bytes == 4) {
      store(record + layout_.weight_at(), batch.weight ? load<float>(batch.weight + 4 * e) : 1.0F);
    }
    writer_->put(bucket);
  }
  return id - batch.first_id;
}

void EdgeSpill::finish() {
  if (writer_) writer_->finish();
  writer_.reset();
}

template <class Call>
void EdgeSpill::for_records(const Bucket& bucket, int64_t first, int64_t count,
                            const Call& call) const {
  const int64_t bytes = layout_.bytes(), most = extent_bytes_ / bytes;  // records of an extent
  std::vector<uint8_t> buffer(size_t(std::min(count, most) * bytes));
  SignalWatch signals;
  for (int64_t done = 0; done < count;) {
    const int64_t within = (first + done) % most, size = std::min(most - within, count - done);
    int64_t at = bucket.extents[size_t((first + done) / most)] + within * bytes;
    uint8_t* to = buffer.data();
    for (int64_t left = size * bytes; left > 0;) {
      const ssize_t got = pread(fd_, to, size_t(left), at);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        fail<FeatureFileError>(
            name_, " cannot be read: ", got < 0 ? std::strerror(errno) : "it was cut off", ".");
      }
      to += got, at += got, left -= got;
    }
    for (int64_t r = 0; r < size; ++r) call(buffer.data() + r * bytes, done + r);
    signals.after(size);
    done += size;
  }
}

std::vector<int64_t> EdgeSpill::split(int64_t number, Key key) {
  const Bucket& whole = bucket(number);
  const bool by_list = whole.num_lists > 1;
  if (!by_list && key == Key::kTime && !layout_.has_time) return {};
  // Keys in the order of the numbers that they are compared by.
  const auto key_of = [&](const uint8_t* record) -> uint64_t {
    if (by_list) return load<uint32_t>(record);
    if (key == Key::kSource) return load<uint32_t>(record + 4);
    return uint64_t(load<int64_t>(record + layout_.time_at())) ^ uint64_t(1) << 63;
  };
  const uint64_t first_list = uint64_t(whole.first_list - whole.origin);
  uint64_t least = first_list, most = first_list + uint64_t(whole.num_lists) - 1;
  if (!by_list) {
    least = ~uint64_t(0), most = 0;
    for_records(whole, 0, whole.num_records, [&](const uint8_t* record, int64_t) {
      least = std::min(least, key_of(record));
      most = std::max(most, key_of(record));
    });
    if (least >= most) return {};
  }
  // Part w has the keys from least + span * w / kWays, rounded up, on.
  using Wide = unsigned __int128;
  const Wide span = Wide(most - least) + 1;
  const int64_t first = num_buckets();
  for (int64_t w = 0; w < kWays; ++w) {
    const auto begin = [&](int64_t way) { return int64_t((span * Wide(way) + kWays - 1) / kWays); };
    const std::lock_guard<std::mutex> lock(mutex_);
    buckets_.push_back({by_list ? whole.first_list + begin(w) : whole.first_list,
                        by_list ? begin(w + 1) - begin(w) : 1, whole.origin});
  }
  Writer writer(*this, first, kWays);
  for_records(whole, 0, whole.num_records, [&](const uint8_t* record, int64_t) {
    const int64_t way = int64_t(Wide(key_of(record) - least) * kWays / span);
    std::memcpy(writer.place(way), record, size_t(layout_.bytes()));
    writer.put(way);
  });
  writer.finish();
  std::vector<int64_t> parts;
  for (int64_t part = first; part < first + kWays; ++part) {
    if (bucket(part).num_records > 0) parts.push_back(part);
  }
  return parts;
}

template <class Index, class Id>
void EdgeSpill::read(int64_t number, int64_t first, int64_t count,
                     const RecordColumns<Index, Id>& out) const {
  const Bucket& from = bucket(number);
  const int64_t first_list = from.first_list - from.origin;
  for_records(from, first, count, [&](const uint8_t* record, int64_t r) {
    out.list[r] = Index(int64_t(load<uint32_t>(record)) - first_list);
    out.src[r] = Index(load<uint32_t>(record + 4));
    if (out.time) out.time[r] = load<int64_t>(record + layout_.time_at());
    out.id[r] = layout_.id_bytes == 8 ? Id(load<int64_t>(record + layout_.id_at()))
                                      : Id(load<uint32_t>(record + layout_.id_at()));
    if (layout_.weight_bytes == 8) {
      std::memcpy(out.weight + 8 * r, record + layout_.weight_at(), 8);
    } else if (layout_.weight_bytes == 4) {
      std::memcpy(out.weight + 4 * r, record + layout_.weight_at(), 4);
    }
  });
}

void EdgeSpill::release(int64_t number) {
  std::vector<int64_t> extents;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Bucket& bucket = buckets_[size_t(number)];
    extents.swap(bucket.extents);
  }
  for (const int64_t at : extents) {
#ifdef FALLOC_FL_PUNCH_HOLE
    // Where it cannot be done, the room is given back with the file.
    (void)fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, extent_bytes_);
#endif
  }
}

template void EdgeSpill::read(int64_t, int64_t, int64_t,
                              const RecordColumns<int32_t, int32_t>&) const;
template void EdgeSpill::read(int64_t, int64_t, int64_t,
                              const RecordColumns<int32_t, int64_t>&) const;
template void EdgeSpill::read(int64_t, int64_t, int64_t,
                              const RecordColumns<int64_t, int32_t>&) const;
template void EdgeSpill::read(int64_t, int64_t, int64_t,
                              const RecordColumns<int64_t, int64_t>&) const;

}  // namespace lg
