//! A source of one stream, `readings`, whose rows it makes up. Replace `discover` and `run` by what reads your data.
wit_bindgen::generate!({ path: "wit", world: "rapidbyte-source" });

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use exports::rapidbyte::connector::source::Guest;
use rapidbyte::connector::{host, types::*};
use serde_json::{json, Value};
use std::{cell::RefCell, sync::Arc};

const ROWS_A_BATCH: i64 = 10_000;
const BEGAN_AT_MICROS: i64 = 1_767_225_600_000_000;

thread_local! { static CONFIG: RefCell<Value> = const { RefCell::new(Value::Null) }; }

struct Source;

impl Guest for Source {
    /// Gets the config of the connection. What it returns comes back with every other call.
    fn open(config_json: String) -> Result<u64, ConnectorError> {
        let config: Value =
            serde_json::from_str(&config_json).map_err(|e| error(ErrorCategory::Config, "NOT_JSON", e.to_string()))?;
        if config["rows"].as_i64().unwrap_or(0) < 0 {
            let message = "`rows` is below 0: set it to the number of rows that you want".to_string();
            return Err(error(ErrorCategory::Config, "BAD_ROWS", message));
        }
        CONFIG.with(|kept| *kept.borrow_mut() = config);
        Ok(1)
    }

    /// `airbyte-proto check`. Look here whether what the config names can be reached.
    fn validate(_session: u64) -> Result<ValidationReport, ConnectorError> {
        Ok(ValidationReport { status: ValidationStatus::Success, message: "all is well".into(), warnings: vec![] })
    }

    /// Names the streams: columns, ways to read them, the key, and the column that an incremental read goes by.
    fn discover(_session: u64) -> Result<String, ConnectorError> {
        let columns = json!([
            {"name": "id", "data_type": "Int64", "nullable": false},
            {"name": "sensor", "data_type": "Utf8", "nullable": false},
            {"name": "celsius", "data_type": "Float64", "nullable": true},
            {"name": "read_at", "data_type": "TimestampMicros", "nullable": false}]);
        Ok(json!({"streams": [{"name": "readings", "schema": {"format": "columns", "data": columns},
            "supported_sync_modes": ["full_refresh", "incremental"],
            "source_defined_cursor": "id", "source_defined_primary_key": ["id"]}]})
        .to_string())
    }

    /// Reads one stream. A panic is a fault of the connector, and ends it.
    fn run(_session: u64, request: RunRequest) -> Result<RunSummary, ConnectorError> {
        let context: Value = serde_json::from_str(&request.stream_context_json).unwrap_or_default();
        let mut last = context["cursor_info"]["last_value"]["value"].as_i64().unwrap_or(0);
        let rows = CONFIG.with(|kept| kept.borrow()["rows"].as_i64().unwrap_or(1000));
        let end = request.max_records.map_or(rows, |most| rows.min(last.saturating_add(most as i64)));
        let mut read =
            ReadSummary { records_read: 0, bytes_read: 0, batches_emitted: 0, checkpoint_count: 0, records_skipped: 0 };
        while last < end {
            let next = end.min(last + ROWS_A_BATCH);
            let bytes = arrow_stream(last + 1, next)?;
            emit(&bytes)?;
            read.records_read += (next - last) as u64;
            read.bytes_read += bytes.len() as u64;
            read.batches_emitted += 1;
            read.checkpoint_count += 1;
            last = next;
            take_checkpoint(last, &read)?;
        }
        Ok(RunSummary { role: ConnectorRole::Source, read: Some(read), write: None, transform: None })
    }

    /// Is called whatever happened. There is nothing to give back here.
    fn close(_session: u64) -> Result<(), ConnectorError> {
        Ok(())
    }
}

/// The rows of these numbers, as a stream of Arrow's IPC format.
fn arrow_stream(first: i64, last: i64) -> Result<Vec<u8>, ConnectorError> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("sensor", DataType::Utf8, false),
        Field::new("celsius", DataType::Float64, true),
        Field::new("read_at", DataType::Timestamp(TimeUnit::Microsecond, None), false),
    ]));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(first..=last)),
        Arc::new(StringArray::from_iter_values((first..=last).map(|n| format!("sensor-{}", n % 8)))),
        Arc::new(Float64Array::from_iter((first..=last).map(|n| (n % 10 != 0).then_some((n % 40) as f64 + 0.5)))),
        Arc::new(TimestampMicrosecondArray::from_iter_values(
            (first..=last).map(|n| BEGAN_AT_MICROS + n * 1_000_000),
        )),
    ];
    let failed = |e: arrow_schema::ArrowError| error(ErrorCategory::Internal, "ARROW", e.to_string());
    let batch = RecordBatch::try_new(schema.clone(), columns).map_err(failed)?;
    let mut writer = StreamWriter::try_new(Vec::new(), &schema).map_err(failed)?;
    writer.write(&batch).map_err(failed)?;
    writer.into_inner().map_err(failed)
}

fn emit(bytes: &[u8]) -> Result<(), ConnectorError> {
    let frame = host::frame_new(bytes.len() as u64)?;
    host::frame_write(frame, bytes)?;
    host::frame_seal(frame)?;
    host::emit_batch(frame)
}

/// Says that all rows up to `last` were given. The next incremental run gets it back, as the last value.
fn take_checkpoint(last: i64, read: &ReadSummary) -> Result<(), ConnectorError> {
    let payload = json!({"kind": "source", "stream": "readings", "id": read.checkpoint_count, "cursor_field": "id",
        "cursor_value": {"type": "int64", "value": last},
        "records_processed": read.records_read, "bytes_processed": read.bytes_read});
    host::checkpoint(0, &payload.to_string())
}

/// An error of the stream that runs, which is not tried again.
fn error(category: ErrorCategory, code: &str, message: String) -> ConnectorError {
    ConnectorError {
        category,
        scope: ErrorScope::PerStream,
        code: code.into(),
        message,
        retryable: false,
        retry_after_ms: None,
        backoff_class: BackoffClass::Normal,
        safe_to_retry: false,
        commit_state: None,
        details_json: None,
    }
}

export!(Source);
