"""Which odd inputs are silent still, by reason, and which are sound: strict lists of tests/e2e/test_odd_inputs.py."""

SILENT = {
    "a dead letter, and the run ends with 0": """
        v_decimal_number v_float_bad_0 v_float_bad_1 v_float_bad_2 v_float_bad_3 v_float_bad_4 v_int_bad_0
        v_int_bad_1 v_int_bad_2 v_int_bad_3 v_int_bad_4 v_int_bad_5 v_int_bad_6 v_int_bad_7 v_int_bad_8
        v_tinyint_bad_0 v_tinyint_bad_1 v_decimal_bad_0 v_decimal_bad_1 v_decimal_bad_2 v_decimal_bad_3
        v_decimal_bad_4 v_decimal_bad_5 v_datetime_iso v_datetime_bad_0 v_datetime_bad_1 v_datetime_bad_2
        v_datetime_bad_3 v_datetime_bad_4 v_datetime_bad_5 v_datetime_bad_6 v_offset_bad_0 v_offset_bad_1
        v_offset_bad_2 v_offset_bad_3 v_offset_bad_4 v_date_bad_0 v_date_bad_1 v_date_bad_2 v_date_bad_3
        v_time_bad_0 v_time_bad_1 v_time_bad_2 v_guid_bad_0 v_guid_bad_1 v_guid_bad_2 v_guid_braces v_bit_bad_0
        v_bit_bad_1 v_bit_bad_2 v_bit_bad_3 v_varbinary_base64 v_varbinary_bad_0 v_varbinary_bad_1
        v_varbinary_bad_2 v_varbinary_bad_3 v_binary_short_0 v_text_too_long_0 v_text_too_long_1
        v_lone_surrogate r_insert_current_text_null r_json_member_twice r_json_key_twice r_delete_has_current
        r_delete_row_in_current r_delete_key_null_in_old k_null c_cols_lack_a_column_of_current
        c_cols_type_without_length c_current_in_other_case n_table_left_out m_data_left_out m_data_null
        m_data_empty m_data_eventrow_missing m_lsn_differs m_gzipped m_base64_in_utf8 p_never_complete
        p_never_complete_delete p_first_never_comes p_contradict p_two_finals p_operations_differ
        p_generation_a_total_differs p_unknown_version f_gz_named_jsonl f_jsonl_named_gz f_other_ending_zst
        q_v_int8 q_v_int_bad_0 q_v_int_bad_1 q_v_int_bad_2 q_v_int_bad_3 q_v_int_bad_4 q_v_int_bad_5 q_v_numeric
        q_v_numeric_number_15_digits q_v_numeric_bad_0 q_v_numeric_bad_1 q_v_numeric_bad_2 q_v_numeric_bad_3
        q_v_numeric_0_0 q_v_real8_bad_0 q_v_real8_bad_1 q_v_boolean_bad_0 q_v_boolean_bad_1 q_v_boolean_bad_2
        q_v_bytes_base64 q_v_bytes_odd_0 q_v_bytes_odd_1 q_v_datetime_millis_number q_v_datetime_bad_0
        q_v_datetime_bad_1 q_v_datetime_bad_2 q_v_date_with_time q_v_text_true_1 q_v_text_true_2
        q_v_unknown_type q_update_lacks_column q_mask_too_long q_mask_no_hex q_mask_lacks_key
        q_insert_mask_empty q_insert_lacks_column q_data_null q_column_unknown q_column_other_case
        q_h_sequence_left_out q_h_sequence_null q_h_sequence_empty q_h_sequence_short q_h_sequence_number
        q_h_sequence_letters q_h_counter_text q_h_counter_negative q_h_operation_lower q_h_operation_unknown
        q_h_operation_truncate q_h_operation_left_out q_h_operation_letter q_h_operation_null q_headers_null
        q_metadata_missing q_metadata_other_id q_metadata_id_null q_metadata_without_type
        q_metadata_lacks_column q_metadata_table_other_case q_metadata_schema_other_case q_metadata_lineage_null
        q_column_added_without_metadata q_without_envelope_unnamed q_avro_id_null
        q_without_envelope_named_other_case ct_v_int_bad_0 ct_v_int_bad_1 ct_v_int_bad_2 ct_v_int_bad_3
        ct_v_int_bad_4 ct_v_numeric_bad_0 ct_v_numeric_bad_1 ct_v_numeric_bad_2 ct_v_numeric_0_0
        ct_v_real8_bad_0 ct_v_real8_bad_1 ct_v_boolean_bad_0 ct_v_boolean_bad_1 ct_v_boolean_bad_2
        ct_v_datetime_bad_0 ct_v_datetime_bad_1 ct_v_datetime_bad_2 ct_mask_header_bit ct_mask_no_hex
        ct_seq_null w_line_null w_line_noise w_line_not_json w_no_table
        w_pieces_never_complete_at_a_quiet_source w_packed_and_cut w_wrapped_read_as_bare w_capture_cut
        w_capture_body_null w_metadata_missing_at_a_quiet_source
    """,
    "a number of JSON goes by way of a double": """
        v_decimal_json_float ct_v_numeric_json_number
    """,
    "a value of 1 MB may be cut, which is counted only": """
        v_one_megabyte v_one_megabyte_of_utf16 v_one_megabyte_in_pieces
    """,
    "NULL or absent, and the event contradicts itself": """
        r_partial_completed_name_null q_update_mask_left_out q_update_mask_null_column_null
        q_update_change_mask_denies_null ct_empty_unquoted_text ct_update_null_not_in_mask
        ct_update_null_not_in_mask_no_before
    """,
    "key, row and operation contradict each other": """
        r_delete_contradicts_pkkey r_insert_contradicts_pkkey r_update_contradicts_pkkey r_same_id_two_events
        r_same_position_other_operation q_delete_contradicts
    """,
    "a key changed and nothing tells it": """
        k_changed_untold ct_key_change_mask_zero ct_key_text_case_untold
    """,
    "char(n) without its blanks is another key": """
        k_char_pkkey_trimmed l_key_char_trimmed
    """,
    "rows that were there have a default, or what became of them, and no change says so": """
        c_added_with_default c_added_with_default_same_tick c_dropped_and_added_with_other_meaning
        c_retyped_rounds_in_place c_retyped_to_varchar q_column_added_with_default ct_column_added_with_default
        l_column_missing_in_export w_columns_listed_later_more w_columns_listed_later_fewer
    """,
    "the table goes on under another name, or never comes": """
        n_table_with_blank n_table_in_brackets n_renamed_table q_renamed_table q_never_seen ct_folder_missing
        w_nothing_ever w_database_in_other_case w_database_misspelled
    """,
    "two databases or tasks send one table": """
        n_other_database q_other_task_same_table
    """,
    "messages are missing between two offsets": """
        f_offset_hole q_offset_hole w_capture_first_is_missing
    """,
    "a file that is not read": """
        f_hidden ct_ending_txt l_hidden_part l_folders_of_partitions l_delta_table
    """,
    "a file that was read is written anew, or is gone": """
        f_written_anew_longer f_written_anew_same_length ct_file_replaced w_file_gone_before_it_grew
        w_source_path_changed
    """,
    "a value that its type does not allow": """
        q_v_text_true_0 q_v_uint_negative_0 ct_v_text_too_long_0 l_value_nan l_value_guid_lower
    """,
    "a reload or a REFRESH in another partition": """
        q_refresh_twice_in_two_partitions_the_other_way q_reload_in_another_partition
        q_reload_all_in_other_partitions
    """,
    "a mask that contradicts the row": """
        ct_mask_none_on_insert ct_mask_none_on_delete ct_mask_beyond_columns ct_mask_denies_change
    """,
    "a data file waits for ever for its .dfm or its content": """
        ct_dfm_missing ct_dfm_missing_behind_good_one ct_zero_bytes ct_zero_bytes_of_json
    """,
    "the task says that it lost a record": """
        ct_error_count
    """,
    "a loaded column that the stream leaves out": """
        l_column_never_streamed
    """,
    "stream_from is behind the whole stream": """
        l_stream_from_behind_the_stream
    """,
}

ORDINARY = """
    v_bigint_number v_float_forms v_real_forms v_int_forms v_money v_dt2_digits v_offset v_date v_guid v_bit
    v_varbinary v_char_pad v_text_words v_text_number v_varchar_bytes r_update_lacks_column_complete
    r_partial_completed r_delete_by_pkkey r_delete_old_lacks_key r_delete_and_again_in_one_transaction
    r_insert_and_delete_in_one_transaction r_delete_before_insert r_out_of_order_over_files r_doubled
    r_doubled_other_spelling r_one_place_two_rows k_pkkey_in_other_order k_swapped k_moved_and_back
    k_moved_and_back_in_one_transaction_late k_chain_in_one_transaction k_chain_from_below k_text_case_changed
    k_text_blank_added k_text_normal_form_changed k_decimal_spellings k_guid_case k_binary_spellings
    k_float_minus_zero k_datetime_spellings k_offset_same_instant k_time_spellings k_empty_text c_reordered
    n_other_schema n_database_in_other_case m_content_type_null m_content_type_left_out m_content_type_charset
    m_segment_and_split m_source_other m_extension m_data_object m_data_base64 m_data_camel m_data_eventdata
    m_pkkey_null m_pkkey_value_null m_transaction_null m_transaction_lsn_lower m_lsn_lower_everywhere
    m_guid_in_capitals m_generation_a m_avro m_avro_confluent p_over_ticks p_base_one p_doubled p_cut_in_character
    p_generation_a f_bom_crlf f_no_last_newline f_gz_two_members f_other_ending_json f_other_ending_ndjson
    f_other_ending_capitals f_twice_two_names f_grows f_zero_bytes f_offset_twice f_folder_below zz_heartbeat
    f_renamed q_v_real8 q_v_boolean q_v_bytes q_v_datetime q_v_text q_v_text_number q_v_text_longer_than_said
    q_v_uint8 q_mask_padded q_delete_in_before q_delete_only_key q_before_left_out q_doubled_and_replayed q_late
    q_delete_and_insert_in_transaction q_key_change q_key_change_mask_denies q_key_text_case q_key_text_blank
    q_h_counter_null q_h_counter_left_out q_h_transaction_null q_h_timestamp_empty q_h_extra q_metadata_late
    q_metadata_no_key q_old_message_after_new_metadata q_refresh_then_changes q_refresh_twice_other_values
    q_refresh_twice_in_two_partitions q_refresh_with_sequence q_tombstone q_message_as_text q_without_envelope_named
    q_without_envelope_named_outside q_named_by_headers_against_metadata q_key_of_record_tells_another
    q_other_table_behind_metadata q_other_table_behind_metadata_next_tick q_other_table_without_envelope
    q_other_schema_same_name q_column_names_like_sections q_avro_plain q_file_twice_two_names q_zz_heartbeat
    ct_v_int8 ct_v_int_json_number ct_v_numeric ct_v_real8 ct_v_boolean ct_v_bytes ct_v_datetime ct_v_text
    ct_v_text_json ct_v_text_parquet ct_v_text_unquoted_nul ct_null_value_is_text
    ct_empty_unquoted_text_with_other_null ct_plain ct_plain_json ct_plain_parquet ct_key_change_before_in_next_file
    ct_key_change_before_follows_in_next_file ct_key_swap ct_timestamp_epoch ct_doubled ct_late ct_delete_only_key
    ct_key_text_blank ct_key_decimal ct_dfm_in_capitals ct_folder_without_schema ct_folder_of_partition ct_bom_crlf
    ct_header_line_missing ct_other_delimiter ct_packed_two_members ct_delivered_twice_two_names
    ct_file_earlier_than_read_ones ct_ending_csv_in_capitals ct_column_with_header_prefix ct_mask_deselected
    ct_zz_heartbeat ct_file_grows l_sound l_column_never_streamed_delete_only l_column_more_in_export
    l_key_blank_and_case l_key_datetime_nanoseconds l_type_nanoseconds l_type_decimal_for_money
    l_type_dictionary_text l_value_texts l_empty l_parts_of_two_orders l_key_changed_while_loading
    l_deleted_while_loading l_csv_sound l_csv_text_null l_csv_bom_crlf l_csv_header_reordered l_csv_only_header
    l_csv_nul l_csv_trailing_blank w_capture_in_capitals
"""
